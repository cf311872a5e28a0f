"""Files that nobody vouches for: read within limits, or refused with the file's name and the reason.

A reader comes in two forms: `parse_…` takes bytes and a name for errors, `read_…` a path. Sizes are compared with
limits and with the bytes that are there before anything is allocated, and nothing is ever unpickled.
"""

from vages.files.archives import ARCHIVES, archive_members, unpack
from vages.files.cifar import parse_cifar10, read_cifar10
from vages.files.deflate import inflate
from vages.files.errors import BadFile, read_bytes
from vages.files.idx import parse_idx, read_idx
from vages.files.image_folder import image_files, is_image_name
from vages.files.images import decode_image, parse_image, pixels_of, read_image
from vages.files.json_files import parse_json, read_json
from vages.files.matlab import parse_mat, read_mat
from vages.files.npy import parse_npy, read_npy
from vages.files.npz import parse_npz, read_npz
from vages.files.pytorch import parse_torch, read_torch
from vages.files.tars import tar_members
from vages.files.zips import zip_members

__all__ = [
    "ARCHIVES",
    "BadFile",
    "archive_members",
    "decode_image",
    "image_files",
    "inflate",
    "is_image_name",
    "parse_cifar10",
    "parse_idx",
    "parse_image",
    "parse_json",
    "parse_mat",
    "parse_npy",
    "parse_npz",
    "parse_torch",
    "pixels_of",
    "read_bytes",
    "read_cifar10",
    "read_idx",
    "read_image",
    "read_json",
    "read_mat",
    "read_npy",
    "read_npz",
    "read_torch",
    "tar_members",
    "unpack",
    "zip_members",
]
