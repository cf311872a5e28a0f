"""Images by the name of a dataset or by a path."""

from pathlib import Path

from vages.data.celeba import load_celeba
from vages.data.cifar10 import load_cifar10
from vages.data.digits import load_digits
from vages.data.freyface import SHAPE, load_freyface
from vages.data.images import Images
from vages.data.mnist import load_mnist
from vages.data.own_images import check_classes, load_image_archive, load_image_array, load_image_folder
from vages.data.splits import Splits
from vages.files import ARCHIVES

_FIXED = {"digits": load_digits, "mnist": load_mnist, "cifar10": load_cifar10}
IMAGE_SETS = (*_FIXED, "freyface", "celeba")


def load_images(name: str | Path, resize: int | None = None, seed: int = 0, *, check: bool = True) -> Images:
    """Load images of shape (channels, height, width) in [0, 1], by the name of a set in `IMAGE_SETS` or by a path.

    A path is that of a folder or a .zip, .tar, .tar.gz or .tgz archive of images, or of a .npy or .npz file; these are
    shuffled by `seed`, unless a .npz file has three sets. `resize` is the size of the images of celeba, a folder or an
    archive.

    Images that can be read but are probably a mistake are refused: arrays whose axes look permuted, uint8 arrays of 0
    and 1, and folders of sets, such as train and test, in place of classes. `check=False` accepts them.
    """
    path, name = Path(name), str(name)
    is_folder, is_archive = path.is_dir(), name.lower().endswith(ARCHIVES)
    if resize is not None and (
        resize < 1 or (name != "celeba" and (name in IMAGE_SETS or not (is_folder or is_archive)))
    ):
        raise ValueError(
            f"resize: expected a size for a folder, an archive or celeba, got {resize} for {name}; leave it out"
        )
    if name in _FIXED:
        return _FIXED[name]()
    if name == "celeba":
        return load_celeba(size=resize or 64)
    if name == "freyface":
        return Images(Splits(*(part.reshape(-1, 1, *SHAPE) for part in load_freyface())), None)
    if is_folder or is_archive:
        images = (load_image_folder if is_folder else load_image_archive)(path, seed, resize)
        if check and images.labels is not None:
            check_classes(name, images.labels.names)
        return images
    if path.suffix.lower() in (".npy", ".npz"):
        return load_image_array(path, seed, check=check)
    got, hint = (repr(name), "choose one") if path.exists() else (f"no file or folder {name!r}", "check the path")
    raise ValueError(
        f"data: expected one of {', '.join(IMAGE_SETS)}, a folder, or a file that ends in "
        f"{', '.join((*ARCHIVES, '.npy', '.npz'))}, got {got}; {hint}"
    )
