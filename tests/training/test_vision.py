"""MNIST and CIFAR-10 from small files in their published formats, and as the hub keeps them."""

import contextlib
import gzip
import hashlib
import importlib
import sys

import numpy as np
import pytest
import torch
from published import cifar_names, idx_bytes, write_cifar10, write_mnist

from depthmup.data import cifar10, images, mnist
from depthmup.training.built_in.official import CIFAR10_BINARY, CIFAR10_PYTHON, MNIST_FILES


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data"


def prepared_as_digits(pixels, mean=None):
    centred = pixels.astype(float) - (pixels.mean(0) if mean is None else mean)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True))


class TestMnist:
    @pytest.mark.parametrize("place", ["", "raw", "MNIST/raw"])
    @pytest.mark.parametrize("packed", [False, True])
    @pytest.mark.parametrize("dot", [False, True])
    def test_wherever_and_however_it_lies(self, folder, place, packed, dot):
        pixels, labels = write_mnist(folder / place, packed=packed, dot=dot)
        found = images("mnist", folder, verify=False)
        np.testing.assert_array_equal(found.pixels, pixels)
        np.testing.assert_array_equal(found.labels, labels)

    def test_prepared_as_the_digits_are(self, folder):
        """Single precision rounds to 6e-8 relative; 1500 examples cross a part's border."""
        pixels, labels = write_mnist(folder, examples=1500)
        data = mnist(folder, verify=False)
        np.testing.assert_allclose(data.inputs.numpy(), prepared_as_digits(pixels), rtol=1e-6)
        assert data.inputs.dtype == torch.float32
        assert data.classes == 10
        assert data.labels.tolist() == labels.tolist()

    def test_the_test_set_is_centred_by_the_training_set(self, folder):
        train, _ = write_mnist(folder)
        test, labels = write_mnist(folder, split="test", examples=20, seed=9)
        data = mnist(folder, split="test", verify=False)
        expected = prepared_as_digits(test, train.mean(0))
        np.testing.assert_allclose(data.inputs.numpy(), expected, rtol=1e-5)
        assert data.labels.tolist() == labels.tolist()
        assert np.abs(expected - prepared_as_digits(test)).max() > 0.01

    def test_missing_files_are_named(self, folder):
        folder.mkdir()
        with pytest.raises(
            ValueError,
            match=r"train-images-idx3-ubyte and train-labels-idx1-ubyte, .* none of them",
        ):
            mnist(folder, verify=False)
        write_mnist(folder)
        (folder / "train-labels-idx1-ubyte").unlink()
        with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte is missing\. .*https://"):
            mnist(folder, verify=False)
        with pytest.raises(ValueError, match="no-such-place is not one"):
            mnist(folder / "no-such-place")

    def test_files_that_do_not_belong_together(self, folder):
        pixels, labels = write_mnist(folder)
        path = folder / "train-labels-idx1-ubyte"
        path.write_bytes(idx_bytes(labels[:-1]))
        with pytest.raises(ValueError, match="got 40 images and 39 labels"):
            mnist(folder, verify=False)
        path.write_bytes(idx_bytes(labels + 1))
        with pytest.raises(ValueError, match=r"labels 0 to 9 in .*; got 10"):
            mnist(folder, verify=False)
        (folder / "train-images-idx3-ubyte").write_bytes(idx_bytes(pixels.reshape(-1, 14, 56)))
        with pytest.raises(ValueError, match="images of 28 x 28; they are of 14 x 56"):
            mnist(folder, verify=False)

    def test_files_of_no_images(self, folder):
        write_mnist(folder, examples=0)
        with pytest.raises(ValueError, match="at least one; got 0 images and 0 labels"):
            mnist(folder, verify=False)

    def test_an_example_that_is_the_mean_cannot_be_scaled(self, folder):
        write_mnist(folder, examples=1)
        with pytest.raises(ValueError, match="example 0 of 1 does not"):
            mnist(folder, verify=False)


class TestCifar10:
    @pytest.mark.parametrize("place", ["", "official"])
    @pytest.mark.parametrize("version", ["binary", "python"])
    def test_wherever_and_however_it_lies(self, folder, place, version):
        names = {"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"}
        pixels, labels = write_cifar10(folder / (place and names[version]), version=version)
        found = images("cifar10", folder, verify=False)
        np.testing.assert_array_equal(found.pixels, pixels)
        np.testing.assert_array_equal(found.labels, labels)

    def test_prepared_as_the_digits_are(self, folder):
        pixels, _ = write_cifar10(folder, version="binary")
        test, _ = write_cifar10(folder, version="binary", split="test", seed=9)
        data = cifar10(folder, verify=False)
        np.testing.assert_allclose(data.inputs.numpy(), prepared_as_digits(pixels), rtol=1e-6)
        data = cifar10(folder, split="test", verify=False)
        expected = prepared_as_digits(test, pixels.mean(0))
        np.testing.assert_allclose(data.inputs.numpy(), expected, rtol=1e-5)

    def test_the_same_content_has_the_same_digest_in_any_files(self, tmp_path):
        for version in ("binary", "python"):
            write_cifar10(tmp_path / version, version=version)
        write_cifar10(tmp_path / "other", version="binary", seed=1)
        digests = {
            name: images("cifar10", tmp_path / name, verify=False).digest
            for name in ("binary", "python", "other")
        }
        assert digests["binary"] == digests["python"] != digests["other"]
        assert len(digests["binary"]) == 32

    def test_labels_are_part_of_the_digest(self, folder):
        write_cifar10(folder, version="binary")
        before = images("cifar10", folder, verify=False).digest
        path = folder / "data_batch_3.bin"
        raw = bytearray(path.read_bytes())
        raw[0] = 9 - raw[0]
        path.write_bytes(raw)
        assert images("cifar10", folder, verify=False).digest != before

    @pytest.mark.parametrize("version", ["binary", "python"])
    def test_missing_files_are_named(self, folder, version):
        folder.mkdir()
        with pytest.raises(ValueError, match=r"data_batch_1.bin, .* none of them is there"):
            cifar10(folder, verify=False)
        write_cifar10(folder, version=version)
        second, third = cifar_names("train", version)[1:3]
        (folder / second).unlink()
        with pytest.raises(ValueError, match=rf"; {second} is missing\. "):
            cifar10(folder, verify=False)
        (folder / third).unlink()
        with pytest.raises(ValueError, match=rf"; {second}, {third} are missing\. "):
            cifar10(folder, verify=False)

    def test_an_archive_is_to_be_unpacked(self, folder):
        folder.mkdir()
        (folder / "cifar-10-python.tar.gz").touch()
        with pytest.raises(ValueError, match=r"unpack cifar-10-python\.tar\.gz there"):
            cifar10(folder)


class TestChecksums:
    def test_other_files_than_the_official_ones_are_refused(self, tmp_path):
        write_mnist(tmp_path / "mnist")
        with pytest.raises(ValueError, match=r"sha256 checksum ba891046.*; got .*verify=False"):
            mnist(tmp_path / "mnist")
        for version, known in (("binary", "md5 checksum 5dd7e06a"), ("python", "sha256 .*5463656")):
            write_cifar10(tmp_path / version, version=version)
            with pytest.raises(ValueError, match=known):
                cifar10(tmp_path / version)

    @pytest.mark.parametrize("packed", [False, True])
    def test_mnist_is_known_by_its_unpacked_files(self, folder, packed, monkeypatch):
        write_mnist(folder, packed=packed)
        for path in folder.iterdir():
            raw = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
            name = path.name.removesuffix(".gz")
            monkeypatch.setitem(MNIST_FILES["train"], name, hashlib.sha256(raw).hexdigest())
        assert len(mnist(folder).labels) == 40

    @pytest.mark.parametrize(
        ("version", "table", "algorithm"),
        [("binary", CIFAR10_BINARY, hashlib.md5), ("python", CIFAR10_PYTHON, hashlib.sha256)],
    )
    def test_cifar_is_known_by_its_files(self, folder, version, table, algorithm, monkeypatch):
        write_cifar10(folder, version=version)
        for path in folder.iterdir():
            monkeypatch.setitem(table["train"], path.name, algorithm(path.read_bytes()).hexdigest())
        assert len(cifar10(folder).labels) == 50
        path.write_bytes(path.read_bytes()[:-1] + b"!")
        with pytest.raises(ValueError, match="damaged or another file"):
            cifar10(folder)

    def test_tables_are_complete(self):
        """Six files of each version, of one algorithm each, all different."""
        for table, files, length in ((MNIST_FILES, 4, 64), (CIFAR10_BINARY, 6, 32)):
            sums = [value for split in table.values() for value in split.values()]
            assert len(set(sums)) == files
            assert {len(value) for value in sums} == {length}
        assert {n + ".bin" for n in CIFAR10_PYTHON["train"]} == set(CIFAR10_BINARY["train"])


class TestHub:
    @pytest.fixture
    def hub(self, folder, monkeypatch):
        """Rows as the hub has them, packed images with the colours last; nothing is fetched."""
        datasets, image = pytest.importorskip("datasets"), pytest.importorskip("PIL.Image")
        pixels, labels = write_cifar10(folder / "cifar10", version="binary")
        digit_pixels, digit_labels = write_mnist(folder / "mnist")
        colours_last = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        rows = {
            "uoft-cs/cifar10": ("img", colours_last, labels),
            "ylecun/mnist": ("image", digit_pixels.reshape(-1, 28, 28), digit_labels),
        }

        def load_dataset(name, split):
            assert split == "train"
            column, pixels, labels = rows[name]
            classes = datasets.ClassLabel(num_classes=10)
            return datasets.Dataset.from_dict(
                {column: [image.fromarray(each) for each in pixels], "label": labels.tolist()},
                features=datasets.Features({column: datasets.Image(), "label": classes}),
            )

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)

    @pytest.mark.parametrize("name", ["mnist", "cifar10"])
    def test_has_the_content_of_the_files(self, hub, folder, name):
        files, rows = images(name, folder / name, verify=False), images(name, "hf")
        np.testing.assert_array_equal(rows.pixels, files.pixels)
        assert rows.digest == files.digest

    @pytest.mark.parametrize("package", ["datasets", "PIL"])
    def test_without_its_packages(self, package, monkeypatch):
        # Where it is first imported, datasets notes for good whether there is a PIL.
        with contextlib.suppress(ImportError):
            importlib.import_module("datasets")
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'depthmup\[hf\]'"):
            mnist("hf")


def test_other_names():
    with pytest.raises(ValueError, match="data set of mnist, cifar10; got 'svhn'"):
        images("svhn", ".")
