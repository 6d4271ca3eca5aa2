"""What protogate brings.  Declarations only: whatever is named here is imported when it is asked for."""

from twisted.application.reactors import Reactor
from twisted.application.service import ServiceMaker

from protogate.interfaces import ICommand, IDiscoveryFactory, IModuleFactory, IStreamCodec
from protogate.plugins import Plugin

protogate = ServiceMaker(
    "protogate",
    "protogate.tap",
    "A protocol-agnostic API gateway with pluggable codecs.",
    "protogate",
)

protogate_uv = Reactor("protogate-uv", "protogate.reactor.uv", "uvloop, with its own transports")

http1 = Plugin(IStreamCodec, "http1", "protogate_http.http1.Http1")
http2 = Plugin(IStreamCodec, "http2", "protogate_http.http2.Http2")
sotp = Plugin(IStreamCodec, "sotp", "protogate_sotp.codec.Sotp")

sotp_command = Plugin(ICommand, "sotp", "protogate_sotp.command.Command")

dns = Plugin(IDiscoveryFactory, "dns", "protogate.discovery.dns.NamesFactory")
listed = Plugin(IDiscoveryFactory, "file", "protogate.discovery.listed.ListedFactory")
etcd = Plugin(IDiscoveryFactory, "etcd", "protogate.discovery.etcd.EtcdFactory")
consul = Plugin(IDiscoveryFactory, "consul", "protogate.discovery.consul.ConsulFactory")

access_list = Plugin(IModuleFactory, "accessList", "protogate.governance.accesslist.AccessListFactory")
add_response_header = Plugin(
    IModuleFactory, "addResponseHeader", "protogate.governance.addresponseheader.AddResponseHeaderFactory"
)
basic_auth = Plugin(IModuleFactory, "basicAuth", "protogate.governance.basicauth.BasicAuthFactory")
body_limit = Plugin(IModuleFactory, "bodyLimit", "protogate.governance.bodylimit.BodyLimitFactory")
cache = Plugin(IModuleFactory, "cache", "protogate.governance.cache.CacheFactory")
circuit_breaker = Plugin(IModuleFactory, "circuitBreaker", "protogate.governance.circuitbreaker.CircuitBreakerFactory")
compress = Plugin(IModuleFactory, "compress", "protogate.governance.compress.CompressFactory")
concurrency_limit = Plugin(
    IModuleFactory, "concurrencyLimit", "protogate.governance.concurrencylimit.ConcurrencyLimitFactory"
)
cors = Plugin(IModuleFactory, "cors", "protogate.governance.cors.CorsFactory")
decompress = Plugin(IModuleFactory, "decompress", "protogate.governance.decompress.DecompressFactory")
degrade = Plugin(IModuleFactory, "degrade", "protogate.governance.degrade.DegradeFactory")
error_page = Plugin(IModuleFactory, "errorPage", "protogate.governance.errorpage.ErrorPageFactory")
fault_inject = Plugin(IModuleFactory, "faultInject", "protogate.governance.faultinject.FaultInjectFactory")
forward_auth = Plugin(IModuleFactory, "forwardAuth", "protogate.governance.forwardauth.ForwardAuthFactory")
hmac_auth = Plugin(IModuleFactory, "hmacAuth", "protogate.governance.hmacauth.HmacAuthFactory")
jwt_auth = Plugin(IModuleFactory, "jwtAuth", "protogate.governance.jwtauth.JwtAuthFactory")
key_auth = Plugin(IModuleFactory, "keyAuth", "protogate.governance.keyauth.KeyAuthFactory")
login_check = Plugin(IModuleFactory, "loginCheck", "protogate.governance.logincheck.LoginCheckFactory")
mtls_auth = Plugin(IModuleFactory, "mtlsAuth", "protogate.governance.mtlsauth.MtlsAuthFactory")
quota = Plugin(IModuleFactory, "quota", "protogate.governance.quota.QuotaFactory")
rate_limit = Plugin(IModuleFactory, "rateLimit", "protogate.governance.ratelimit.RateLimitFactory")
rbac = Plugin(IModuleFactory, "rbac", "protogate.governance.rbac.RbacFactory")
redirect = Plugin(IModuleFactory, "redirect", "protogate.governance.redirect.RedirectFactory")
remove_header = Plugin(IModuleFactory, "removeHeader", "protogate.governance.removeheader.RemoveHeaderFactory")
respond = Plugin(IModuleFactory, "respond", "protogate.governance.respond.RespondFactory")
rewrite_method = Plugin(IModuleFactory, "rewriteMethod", "protogate.governance.rewritemethod.RewriteMethodFactory")
rewrite_path = Plugin(IModuleFactory, "rewritePath", "protogate.governance.rewritepath.RewritePathFactory")
rewrite_query = Plugin(IModuleFactory, "rewriteQuery", "protogate.governance.rewritequery.RewriteQueryFactory")
set_request_header = Plugin(
    IModuleFactory, "setRequestHeader", "protogate.governance.setrequestheader.SetRequestHeaderFactory"
)
set_response_header = Plugin(
    IModuleFactory, "setResponseHeader", "protogate.governance.setresponseheader.SetResponseHeaderFactory"
)
traffic_copy = Plugin(IModuleFactory, "trafficCopy", "protogate.governance.trafficcopy.TrafficCopyFactory")
