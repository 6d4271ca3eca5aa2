"""The language of the configuration: conditions and templates, compiled to closures at load time."""
