"""Turns a container of a Pod into an order for the launcher: image, environment, mounts, working folder."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from shoal_local import images
from shoal_local.agent import environment, expansion, files
from shoal_local.agent.container import Prepared, SetupError
from shoal_local.agent.context import Context
from shoal_local.agent.fields import Place
from shoal_local.agent.prober import RunInside, Target
from shoal_local.agent.process import Order
from shoal_local.agent.references import ConfigError, References
from shoal_local.agent.volumes import Mount, PodVolumes
from shoal_local.identity import CLUSTER_VARIABLE
from shoal_local.kube import ERRORS
from shoal_local.yamlfile import InvalidFileError

_HOSTS_PATH: Final = "/etc/hosts"


def hosts_text(pod: Mapping[str, Any], address: str) -> str:
    """/etc/hosts of a Pod, as a kubelet writes it."""
    spec, name = pod["spec"], pod["spec"].get("hostname") or pod["metadata"]["name"]
    domain = f"{spec['subdomain']}.{pod['metadata']['namespace']}.svc.cluster.local" if spec.get("subdomain") else ""
    names = [f"{name}.{domain}", name] if domain else [name]
    lines = ["127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback", f"{address}\t{' '.join(names)}"]
    lines += [f"{each['ip']}\t{' '.join(each.get('hostnames') or [])}" for each in spec.get("hostAliases") or []]
    return "\n".join(lines) + "\n"


async def prepare(
    context: Context,
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    pod_folder: Path,
    volumes: PodVolumes,
    place: Place,
    run_inside: RunInside,
) -> Prepared:
    """The order for one start of a container; SetupError says what is missing."""
    image = _find_image(context, container["image"])
    references = References(context.kube, pod["metadata"]["namespace"])
    folder = files.container_folder(pod_folder, container["name"])
    work = folder / "work"
    for each in (work, folder / "logs"):
        each.mkdir(parents=True, exist_ok=True)
    base = images.base_variables(image) | context.cluster_variables()
    base |= {
        "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"],
        "HOME": str(work),
        CLUSTER_VARIABLE: context.cluster_id,
    }
    try:
        variables = await environment.build_environment(pod, container, base, references, place)
        mounts = volumes.mounts(container, variables)
    except ConfigError as error:
        raise SetupError("CreateContainerConfigError", str(error)) from error
    except (OSError, *ERRORS) as error:
        raise SetupError("CreateContainerConfigError", str(error) or type(error).__name__) from error
    command = expansion.expand_all(list(container.get("command") or []), variables)
    args = expansion.expand_all(list(container.get("args") or []), variables)
    termination_log = folder / "termination-log"
    termination_log.touch()
    security = container.get("securityContext") or {}
    root = None
    if context.abilities.private_root:
        root = _root(pod, container, pod_folder, mounts, termination_log, _kept(image, work))
    else:
        variables |= _volume_hints(mounts)
    order = Order(
        argv=images.argv_of(image, command, args),
        env=variables,
        cwd=container.get("workingDir") or str(work),
        root=root,
        no_new_privileges=security.get("allowPrivilegeEscalation") is False,
    )
    ports = container.get("ports") or []
    return Prepared(order, Target(place.pod_ip, ports, context.session, run_inside), termination_log)


def _find_image(context: Context, reference: str) -> images.Environment:
    try:
        return images.find_image(images.read_images(context.settings.images), reference)
    except images.ImageMissingError as error:
        raise SetupError("ErrImagePull", f"{error} (image map {context.settings.images})") from error
    except (InvalidFileError, OSError) as error:
        raise SetupError("ErrImagePull", str(error)) from error


def _root(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    pod_folder: Path,
    mounts: list[Mount],
    termination_log: Path,
    kept: list[str],
) -> dict[str, Any]:
    """The order for `launch_root`."""
    all_mounts = list(mounts)
    targets = {os.path.normpath(mount.target) for mount in mounts}
    for source, target in (
        (pod_folder / "hosts", _HOSTS_PATH),
        (termination_log, container.get("terminationMessagePath") or "/dev/termination-log"),
    ):
        if target not in targets:
            all_mounts.append(Mount(str(source), target, False))
    # The environment itself must stay visible when a volume covers the folder it lies in (a checkout below /tmp).
    covered = [path for path in kept if any(path.startswith(f"{target}/") for target in targets)]
    all_mounts += [Mount(path, path, path != kept[-1]) for path in covered]
    hostname = pod["spec"].get("hostname") or pod["metadata"]["name"]
    return {
        "hostname": hostname[:63],
        "mounts": [mount.as_order() for mount in all_mounts],
        "read_only": bool((container.get("securityContext") or {}).get("readOnlyRootFilesystem")),
    }


def _kept(image: images.Environment, work: Path) -> list[str]:
    """Folders that must stay visible; the working folder is the last, and the only one that stays writable."""
    named = [*image.keep, *image.path, *image.python_path]
    return [*dict.fromkeys(path for path in named if os.path.isdir(path)), str(work)]


def _volume_hints(mounts: list[Mount]) -> dict[str, str]:
    hint = {}
    for mount in mounts:
        hint[f"SHOAL_VOLUME{re.sub('[^A-Za-z0-9]+', '_', mount.target).rstrip('_').upper()}"] = mount.source
    return hint
