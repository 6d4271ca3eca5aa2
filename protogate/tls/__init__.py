"""
TLS, for both sides and for both libraries: C{ssl} on uvloop's reactor, pyOpenSSL on every other.

    files.py      what stands in files: certificates, keys, authorities; what is wrong with them
    server.py     what a listener offers, and which certificate is for which name
    client.py     what an upstream is asked for, and whom it must prove to be
    native.py     both as contexts of C{ssl}
    openssl.py    both as contexts of pyOpenSSL
    session.py    what was negotiated, and the certificate of a client
    layer.py      TLS begins on a connection: one function, whichever the library

Files are read, and contexts made, where a configuration is built: beside the event loop.
"""
