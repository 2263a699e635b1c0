"""compose.yaml: by the schema of the Compose specification, and by what its keys have to say to shut containers off."""

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from service.api.middleware import LOOPBACK_NAMES, host_names
from service.server import is_loopback
from service.settings import Settings, load
from tests.support.dockerfile import DOCKER, ROOT, stages
from tuning_db.engine import shown

FILE = DOCKER / "compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {"service", "worker", "service-cuda", "worker-cuda"}
SERVERS = {"service", "service-cuda"}
TEMPORARY = ["/tmp:noexec,nosuid,nodev,size=2g,mode=1777"]
# Every key that a service may have here. Others may open what these close: privileged, cap_add, network_mode, pid, ...
KEYS = set(
    "build cap_drop command depends_on deploy environment healthcheck image init logging networks ports profiles "
    "read_only restart secrets security_opt stop_grace_period tmpfs user volumes".split()
)


def settings(name: str) -> Settings:
    """Settings that a container's processes read: from the environment of its image and of compose.yaml."""
    stage = stages()[SERVICES[name]["build"]["target"]]
    return load(env={**stage.environment, **SERVICES[name]["environment"]})


def ports(name: str) -> Iterator[tuple[str, str, str]]:
    """Address and port of the host, port of the container."""
    for port in SERVICES[name].get("ports", ()):
        address, published, inside = port.split(":")
        yield address, published, inside


def test_it_is_valid_by_the_schema_of_the_specification() -> None:
    """The schema travels inside check-jsonschema: nothing is fetched."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_has_a_database_a_service_two_workers_and_gpus_by_a_profile() -> None:
    assert set(SERVICES) == {"postgres", *OURS}
    assert SERVICES["worker"]["deploy"] == {"replicas": 2}
    assert {name for name in SERVICES if "profiles" in SERVICES[name]} == {"service-cuda", "worker-cuda"}
    for name in ("service-cuda", "worker-cuda"):
        assert SERVICES[name]["profiles"] == ["gpu"]
        [device] = SERVICES[name]["deploy"]["resources"]["reservations"]["devices"]
        assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    assert settings("service-cuda").target == "cuda"


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_has_no_rights_and_a_root_that_is_read_only(name: str) -> None:
    service = SERVICES[name]
    assert set(service) - KEYS == set()
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True, "somebody has to reap compilers that were killed"
    if name == "postgres":
        assert service["user"] == "postgres"
        assert service["tmpfs"] == ["/tmp", "/var/run/postgresql"]
    else:
        assert "user" not in service, "the image says who it is"
        assert service["tmpfs"] == TEMPORARY


@pytest.mark.parametrize("name", sorted(OURS))
def test_images_are_built_from_targets_of_the_dockerfile(name: str) -> None:
    service = SERVICES[name]
    build = service["build"]
    assert (DOCKER / build["context"]).resolve() == ROOT
    assert ROOT / build["dockerfile"] == DOCKER / "Dockerfile"
    assert build["target"] in stages()
    assert service["image"] == f"fuseplan-{build['target']}"
    command = service.get("command", stages()[build["target"]].command)
    assert command == stages()["service" if name in SERVERS else "worker"].command


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_ports_are_published_on_loopback_alone(name: str) -> None:
    published = list(ports(name))
    assert all(is_loopback(address) for address, _, _ in published)
    assert [inside for _, _, inside in published] == ([str(settings(name).port)] if name in SERVERS else [])


def test_no_two_services_publish_one_port() -> None:
    published = [port for name in SERVICES for _, port, _ in ports(name)]
    assert len(published) == len(set(published)) == len(SERVERS)


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_a_server_listens_where_its_port_is_published_to(name: str) -> None:
    """On all addresses of its container, and it answers to its name in the network."""
    found = settings(name)
    assert found.host == "0.0.0.0"
    assert host_names(found.allowed_hosts) == LOOPBACK_NAMES | {name}
    assert found.workers == 0, "workers are containers of their own"
    assert SERVICES[name]["networks"] == ["inside", "outside"]


def test_only_servers_are_in_a_network_that_leads_outside() -> None:
    assert COMPOSE["networks"] == {"inside": {"internal": True}, "outside": {}}
    for name in set(SERVICES) - SERVERS:
        assert SERVICES[name]["networks"] == ["inside"]


@pytest.mark.parametrize("name", sorted(OURS))
def test_the_database_is_that_of_compose_and_its_address_has_no_password(name: str) -> None:
    address, postgres = settings(name).db, SERVICES["postgres"]["environment"]
    assert address == f"postgresql://{postgres['POSTGRES_USER']}@postgres/{postgres['POSTGRES_DB']}"
    assert shown(address) == address
    assert SERVICES[name]["depends_on"] == {"postgres": {"condition": "service_healthy"}}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_the_password_is_a_secret_that_everybody_reads_from_one_file(name: str) -> None:
    assert COMPOSE["secrets"] == {"db_password": {"file": "./secrets/db_password"}}
    assert SERVICES[name]["secrets"] == ["db_password"]
    variable = "POSTGRES_PASSWORD_FILE" if name == "postgres" else "PGPASSWORD_FILE"
    environment = SERVICES[name]["environment"]
    assert environment[variable] == "/run/secrets/db_password"
    assert [key for key in environment if "PASS" in key and not key.endswith("_FILE")] == []
    assert variable == "POSTGRES_PASSWORD_FILE" or variable in (DOCKER / "entrypoint.sh").read_text()


def test_secrets_are_in_no_commit() -> None:
    ignored = ["git", "-C", str(ROOT), "check-ignore", "-q", "docker/secrets/db_password"]
    lines = (ROOT / ".gitignore").read_text().splitlines()
    assert "/docker/secrets/" in lines
    if (ROOT / ".git").exists():
        assert subprocess.run(ignored, check=False).returncode == 0


@pytest.mark.parametrize("name", sorted(OURS))
def test_everybody_shares_the_cache(name: str) -> None:
    """By its locks workers take turns at a device."""
    assert SERVICES[name]["volumes"][0] == f"cache:{settings(name).cache}"
    assert set(COMPOSE["volumes"]) == {"cache", "database", "keys"}


@pytest.mark.parametrize("name", sorted(OURS))
def test_servers_alone_have_the_key_that_answers_are_signed_with(name: str) -> None:
    """And they share it: a client that trusts one of them trusts both."""
    folder = settings(name).signing_key.rpartition("/")[0]
    assert SERVICES[name]["volumes"][1:] == ([f"keys:{folder}"] if name in SERVERS else [])


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_a_server_is_looked_after(name: str) -> None:
    """A server has the health check of its image; one that runs a worker's image has that of the service's image."""
    said = SERVICES[name].get("healthcheck", {}).get("test", [])
    assert said == ([] if name == "service" else ["CMD", *stages()["service"].health_command])


def test_texts_name_what_there_is() -> None:
    """The README: every file of the folder, every volume and port; and nothing that is not there any more."""
    text = (DOCKER / "README.md").read_text()
    files = {path.name for path in DOCKER.iterdir() if path.is_file() and path.name != "README.md"}
    assert set(re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE)) == files
    for name in SERVERS:
        for address, published, _ in ports(name):
            assert f"{address}:{published}" in text
    for variable in re.findall(r"--env \"?(\w+)=", text):
        assert variable == "PGPASSWORD_FILE" or variable.startswith("FUSEPLAN_")
    assert TEMPORARY[0] in text
    assert set(re.findall(r"docker compose (?:run --rm|exec)(?: -T)? ([\w-]+) ", text)) <= set(SERVICES)
