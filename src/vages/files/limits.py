"""The limits on untrusted files, in one place. Readers check them before they allocate memory."""

MAX_MEMBERS = 10**6  # files in an archive, images in a folder
MAX_ARRAYS = 10**4  # in an .npz file or a file of weights
MAX_ARRAY_BYTES = 2**34  # of all arrays in a user's file, and of all pixels of a user's images
MAX_TABLE_BYTES = 2**28  # of a .csv file, which takes some ten times as much memory while it is read
MAX_ARCHIVE_BYTES = 2**35  # of all files in an archive, which are not in memory at the same time
MAX_IMAGE_BYTES, MAX_PIXELS = 2**26, 2**25  # of one image
MAX_HEADER = 2**20  # bytes that describe one member of a tar archive
_RATIO, _SMALL = 200, 2**26


def max_unpacked(packed: int, limit: int) -> int:
    """Return how many bytes `packed` may unpack to: 64 MiB or 200 times as many, if more, and at most `limit`."""
    return min(limit, max(_SMALL, _RATIO * packed))
