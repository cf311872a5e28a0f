"""Datasets as arrays."""

from vages.data.arrays import load_array, load_labels, load_splits, load_test_rows
from vages.data.batches import Batches
from vages.data.catalogue import Dataset, datasets
from vages.data.celeba import celeba_folder, load_celeba
from vages.data.cifar10 import cifar10_folder, load_cifar10
from vages.data.converted_images import convert_images, load_converted_images
from vages.data.digits import load_digits
from vages.data.fetching import fetch
from vages.data.folder import data_folder
from vages.data.freyface import freyface_file, load_freyface
from vages.data.image_sets import IMAGE_SETS, load_images
from vages.data.images import Images, Labels
from vages.data.mnist import load_mnist, mnist_folder
from vages.data.own_images import load_image_archive, load_image_array, load_image_folder
from vages.data.splits import Splits, split
from vages.data.toy import TOYS, Toy, load_toy

__all__ = [
    "IMAGE_SETS",
    "TOYS",
    "Batches",
    "Dataset",
    "Images",
    "Labels",
    "Splits",
    "Toy",
    "celeba_folder",
    "cifar10_folder",
    "convert_images",
    "data_folder",
    "datasets",
    "fetch",
    "freyface_file",
    "load_array",
    "load_celeba",
    "load_cifar10",
    "load_converted_images",
    "load_digits",
    "load_freyface",
    "load_image_archive",
    "load_image_array",
    "load_image_folder",
    "load_images",
    "load_labels",
    "load_mnist",
    "load_splits",
    "load_test_rows",
    "load_toy",
    "mnist_folder",
    "split",
]
