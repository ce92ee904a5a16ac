# Jobs in a container (`--sdm apptainer`): packages come from the image, the code from this checkout. No image is
# published, so an environment variable names it.

import shlex

from snakemake.settings.types import DeploymentMethod


def container_image():
    """Return a file, a folder, or an address for `apptainer pull`."""
    image = os.environ.get("G2D_CONTAINER", "")
    if "://" not in image and not (image and os.path.exists(image)):
        problem = f"G2D_CONTAINER: there is no {os.path.abspath(image)}" if image else "G2D_CONTAINER is not set"
        raise Refusal(
            f"--sdm apptainer: {problem}: export G2D_CONTAINER=/whole/path/g2d.sif (docs/environments.md says how it is built)"
        )
    return image if "://" in image else os.path.abspath(image)


def bound_folders():
    """Folders to mount besides Apptainer's defaults: working directory, /tmp and home."""
    folders = [str(ROOT)]
    for cache in ("HF_HOME", "VLLM_CACHE_ROOT"):
        if folder := os.environ.get(cache):
            if not os.path.isdir(folder):
                raise Refusal(f"--sdm apptainer: {cache}: make the folder {folder} first: jobs see it as it is now")
            folders.append(os.path.abspath(folder))
    return folders


if DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method:
    if DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method:
        raise Refusal("--sdm conda apptainer: name one of them, because the image has no conda")

    container: container_image()

    for folder in bound_folders():
        if (bind := f"--bind {shlex.quote(folder)}") not in workflow.deployment_settings.apptainer_args:
            workflow.deployment_settings.apptainer_args += f" {bind}"
