"""A build backend that answers metadata questions only.

`pip download --no-binary` asks the backend of an sdist for metadata, which for meson-python means installing and
configuring a whole build first. We want the source archive alone; this answers in its place (deps/fetch.sh puts it on
PYTHONPATH for that one command).
"""
import os

NAME, VERSION = "nanoarrow", "0.9.0"


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Write the smallest valid dist-info folder and return its name."""
    name = f"{NAME}-{VERSION}.dist-info"
    path = os.path.join(metadata_directory, name)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "METADATA"), "w", encoding="utf-8") as f:
        f.write(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n")
    return name


def build_wheel(*_args, **_kwargs):
    """Never called: this backend builds nothing."""
    raise RuntimeError("this backend is for fetching the source archive only")
