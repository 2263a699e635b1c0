"""The HTTP API, one file per kind of thing: `app.create_app` puts the routers together."""
