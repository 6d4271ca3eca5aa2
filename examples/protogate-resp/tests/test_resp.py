from protogate.testing.codec import CodecContract
from twisted.trial.unittest import SynchronousTestCase
from protogate_resp.codec import Resp
class RespContract(CodecContract, SynchronousTestCase):
    codec = Resp
    lacks = ("trailers", "interim", "continue", "upgrade", "halfclose", "head", "refuse", "multiplex", "goaway")
