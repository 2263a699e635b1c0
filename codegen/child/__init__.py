"""Programs that `codegen.sandbox.slot` runs in child processes: `python -m codegen.child.NAME`. Nobody else imports
them."""
