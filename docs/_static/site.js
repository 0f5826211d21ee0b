// The sidebar's sections fold; the one of the page at hand is open. Every block of code can be copied.
document.addEventListener("DOMContentLoaded", () => {
  for (const caption of document.querySelectorAll(".sidebar-tree p.caption")) {
    const list = caption.nextElementSibling;
    if (!list || list.tagName !== "UL") continue;
    const section = document.createElement("details");
    const title = document.createElement("summary");
    const first = !caption.parentElement.querySelector("details");
    title.className = "caption";
    title.append(...caption.childNodes);
    section.open = Boolean(list.querySelector(".current")) || first;
    caption.replaceWith(section);
    section.append(title, list);
  }
  for (const block of document.querySelectorAll("div.highlight")) {
    const button = document.createElement("button");
    const code = block.querySelector("pre");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(code.innerText.trimEnd());
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    block.append(button);
  }
});
