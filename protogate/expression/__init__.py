"""
The language of the configuration, compiled to closures at load time.

In the order of the work: C{lexer} cuts text into tokens, C{parser} makes a C{tree} of them, C{names} says what a name
means, C{compiler} checks types and makes closures; C{regex}, C{ambiguity} and C{cidr} check what matches() and inCidr()
are given.  Others use L{protogate.expression.condition}, L{protogate.expression.template} and
L{protogate.expression.regex}.

The language is a subset of CEL (https://github.com/google/cel-spec).  It differs where a gateway wants it to:

- Evaluation cannot fail.  A key that a map does not hold gives the empty string, where CEL has an error; C{'x' in
  request.headers} tells the two apart.  So the error-absorbing side of C{&&} and C{||} never shows.
- Types are static: what CEL finds out on evaluation (C{1 < 'a'}, C{1 == 'a'}, a list of mixed types) is a fault at
  load.
- There is no arithmetic but the sign, no bytes, no map literals, no macros (C{has}, C{all}, C{exists} …).
- The pattern of matches() and the network of inCidr() are constants, so that they can be checked at load.
"""
