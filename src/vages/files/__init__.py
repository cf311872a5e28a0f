"""Readers of untrusted files, with limits on memory and without running code from a file.

`parse_…` takes bytes and a name for errors, `read_…` a path. A file that cannot be used raises a one-line `BadFile`.
"""
# ruff: noqa: F401

from vages.files.archives import ARCHIVES, archive_members, inflate, tar_members, zip_members
from vages.files.arrays import declared_arrays, parse_cifar10, parse_idx, parse_npy, parse_npz, read_npy, read_npz
from vages.files.image_folder import image_files, is_image_member, is_image_name
from vages.files.images import decode_image, parse_image, pixels_of, read_image
from vages.files.json_files import parse_json, read_json
from vages.files.tables import parse_csv, read_csv
from vages.storage.errors import BadFile, read_bytes
