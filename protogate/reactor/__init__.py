"""A Twisted reactor on uvloop's own transports; C{best} installs it where uvloop is, else Twisted's default."""
