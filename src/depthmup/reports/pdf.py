"""PDFs whose bytes depend on what they show alone."""

import re

_OBJECT = re.compile(rb"(\d+) 0 obj\n")
_LENGTH = re.compile(rb"/Length (\d+)\b(?! \d+ R)")
_REFERENCE = re.compile(rb"\b(\d+) 0 R\b")
_ENTRIES = re.compile(rb"(?:^ +/[a-z]+\d+ [^\n]*\n)+", re.M)
_TRAILER = re.compile(rb"trailer\n(<<.*?>>)\nstartxref\n\d+\n%%EOF", re.S)


def in_order(pdf: bytes) -> bytes:
    """A PDF with its objects in the order in which they are reached from its root.

    svg2pdf, which draws, numbers fonts and names resources in the random order of a hash table. One
    that is built otherwise, such as with compressed objects, is given back as it is.
    """
    objects, end = _objects(pdf)
    trailer = _TRAILER.search(pdf, end)
    if trailer is None or not objects:
        return pdf
    heads = {n: _ENTRIES.sub(_sorted, head) for n, (head, _) in objects.items()}
    order: dict[int, int] = {}
    waiting = _references(trailer[1])[::-1]
    while waiting:
        number = waiting.pop()
        if number in objects and number not in order:
            order[number] = len(order) + 1
            waiting += _references(heads[number])[::-1]

    def renumbered(text: bytes) -> bytes:
        return _REFERENCE.sub(lambda found: b"%d 0 R" % order[int(found[1])], text)

    if not {n for text in (trailer[1], *heads.values()) for n in _references(text)} <= {*order}:
        return pdf
    written = bytearray(pdf[: pdf.index(b"\n", pdf.index(b"\n") + 1) + 1])  # the version's lines
    places = []
    for number, new in order.items():
        places.append(len(written))
        written += b"%d 0 obj\n" % new + renumbered(heads[number]) + objects[number][1] + b"\n\n"
    table = [b"%010d 65535 f\r\n" % 0, *(b"%010d 00000 n\r\n" % place for place in places)]
    start, size = len(written), b"/Size %d" % len(table)
    written += b"xref\n0 %d\n" % len(table) + b"".join(table)
    written += b"trailer\n" + re.sub(rb"/Size \d+", size, renumbered(trailer[1]))
    return bytes(written + b"\nstartxref\n%d\n%%%%EOF" % start)


def _objects(pdf: bytes) -> tuple[dict[int, tuple[bytes, bytes]], int]:
    """What every object has before its stream, and the rest, by number; and where they end."""
    objects, end = dict[int, tuple[bytes, bytes]](), 0
    while found := _OBJECT.search(pdf, end):
        begin = found.end()
        stream, end = pdf.find(b"stream\n", begin), pdf.find(b"endobj", begin)
        if begin < stream < end:
            stream += len(b"stream\n")
            length = _LENGTH.search(pdf, begin, stream)
            if length is None:
                return {}, 0
            end = pdf.find(b"endobj", stream + int(length[1]))
        else:
            stream = end
        end += len(b"endobj")
        objects[int(found[1])] = pdf[begin:stream], pdf[stream:end]
    return objects, end


def _references(text: bytes) -> list[int]:
    return [int(number) for number in _REFERENCE.findall(text)]


def _sorted(entries: re.Match[bytes]) -> bytes:
    """Lines of a dictionary of resources, by name and number."""
    lines = [(line.split()[0], line) for line in entries[0].splitlines(keepends=True)]
    return b"".join(line for name, line in sorted(lines, key=lambda each: (len(each[0]), each[0])))
