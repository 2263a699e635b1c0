"""The upgrade of the tables from one revision to another, by Alembic, run from the package."""

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection


def upgrade_to(connection: Connection, target: str) -> None:
    """Brings the tables to a revision, in the connection's transaction."""
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, target)


def scripts() -> ScriptDirectory:
    """The migrations, as Alembic finds them."""
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "tuning_db:migrations")
    return config
