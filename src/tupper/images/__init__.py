"""Images and templates: from a name to one immutable root filesystem on disk."""

from tupper.images.catalog import Images
from tupper.images.disk import make_disk
from tupper.images.layers import Limits
from tupper.images.records import ImageInfo, Progress, ProgressEvent, Pruned, TemplateInfo
from tupper.images.templates import Templates

__all__ = [
    "ImageInfo",
    "Images",
    "Limits",
    "Progress",
    "ProgressEvent",
    "Pruned",
    "TemplateInfo",
    "Templates",
    "make_disk",
]
