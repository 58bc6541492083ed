//! Who may ask: the Host and Origin that a browser sends, and keys.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::super::openai::ApiError;
use super::{Shared, reply};
use crate::limits::KEY_REQUESTS_MAX;

/// A key, of which only a digest is kept.
#[derive(Clone)]
pub struct Key {
    digest: [u8; 32],
    /// Whether its requests may name a priority.
    pub may_prioritise: bool,
}

impl Key {
    /// A key as a client sends it.
    #[must_use]
    pub fn new(text: &str, may_prioritise: bool) -> Self {
        Self { digest: Sha256::digest(text).into(), may_prioritise }
    }
}

/// What the guard knows.
pub struct Access {
    /// None: no key is asked for.
    pub keys: Vec<Key>,
    /// Origins whose pages may ask, beside the server's own.
    pub origins: Vec<String>,
    /// Names by which the server may be reached, beside loopback's and addresses.
    pub hosts: Vec<String>,
    /// Only loopback reaches it.
    pub is_loopback: bool,
    /// Requests of all keys share cached prompts.
    pub shared_cache: bool,
}

/// Who asks.
#[derive(Debug, Clone)]
pub(super) struct Client {
    /// Whose share of the device it takes.
    pub(super) tenant: u64,
    /// It came with a key; without any, all are one client, and connections and the queue bound them.
    pub(super) has_key: bool,
    /// Part of the cache salt.
    pub(super) salt: Option<String>,
    /// Whether its requests may name a priority.
    pub(super) may_prioritise: bool,
    /// When its request came, by the engine's clock; 0 while there is no engine.
    pub(super) arrived_nanos: u64,
}

/// Requests in work, by tenant.
#[derive(Clone, Default)]
pub(super) struct Working(Arc<Mutex<HashMap<u64, usize>>>);

/// One of them; dropped when it is done.
pub(super) struct Place {
    working: Working,
    tenant: u64,
}

impl Working {
    /// A place for one more request of a client.
    pub(super) fn enter(&self, client: &Client) -> Result<Place, ApiError> {
        let tenant = client.tenant;
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let count = all.entry(tenant).or_default();
        if client.has_key && *count >= KEY_REQUESTS_MAX {
            let message = format!("too many requests at once: expected at most {KEY_REQUESTS_MAX} of one key");
            return Err(reply::error(429, "rate_limit_error", Some("concurrency"), &message));
        }
        *count += 1;
        Ok(Place { working: self.clone(), tenant })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.working.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.tenant);
            }
        }
    }
}

/// Lets a request through, or says why not.
pub(super) async fn guard(State(server): State<Shared>, mut request: Request, next: Next) -> Response {
    let arrived_nanos = server.loaded.get().map_or(0, |loaded| loaded.engine.nanos());
    let client = match server.access.client(request.uri(), request.headers()) {
        Ok(client) => Client { arrived_nanos, ..client },
        Err(error) => return error.into_response(),
    };
    request.extensions_mut().insert(client);
    next.run(request).await
}

impl Access {
    fn client(&self, uri: &Uri, headers: &HeaderMap) -> Result<Client, ApiError> {
        if headers.get_all(HOST).iter().count() > 1 {
            // Whoever stands before this server may have looked at the other one.
            let message = "host: expected one, got several";
            return Err(reply::error(400, "invalid_request_error", Some("host"), message));
        }
        let host = uri.host().map(str::to_owned).or_else(|| host_of(headers.get(HOST)?.to_str().ok()?));
        if !self.knows_host(host.as_deref()) {
            let message = format!("host: expected this server's own name, got {:?}", host.unwrap_or_default());
            return Err(reply::error(403, "permission_error", Some("host"), &message));
        }
        if let Some(origin) = headers.get(ORIGIN) {
            let origin = origin.to_str().unwrap_or("");
            let own = headers.get(HOST).and_then(|host| host.to_str().ok());
            if !self.knows_origin(origin, own) {
                let message = "origin: pages of this origin may not ask; --allowed-origins lists those that may";
                return Err(reply::error(403, "permission_error", Some("origin"), message));
            }
        }
        let open = Client { tenant: 0, has_key: false, salt: None, may_prioritise: true, arrived_nanos: 0 };
        if self.keys.is_empty() || uri.path() == "/health" {
            return Ok(open);
        }
        let key = self.key(headers)?;
        let tenant = u64::from_le_bytes(key.digest[..8].try_into().expect("8 bytes"));
        // Not the digest that keys are checked by: a salt must not help to find one.
        let salt = || Sha256::new_with_prefix("cache salt").chain_update(key.digest).finalize();
        let salt = (!self.shared_cache).then(|| salt().iter().map(|byte| format!("{byte:02x}")).collect());
        Ok(Client { tenant, has_key: true, salt, may_prioritise: key.may_prioritise, arrived_nanos: 0 })
    }

    /// The key that a request carries. Every key is compared whole, whichever fits.
    fn key(&self, headers: &HeaderMap) -> Result<&Key, ApiError> {
        let sent = headers.get(AUTHORIZATION).map(axum::http::HeaderValue::as_bytes);
        let bearer = sent.and_then(|sent| {
            let (scheme, key) = sent.split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then_some(key)
        });
        let Some(bearer) = bearer else {
            let message = "no key: expected a header Authorization: Bearer KEY";
            return Err(reply::error(401, "authentication_error", Some("invalid_api_key"), message));
        };
        let digest: [u8; 32] = Sha256::digest(bearer.trim_ascii()).into();
        let mut found = None;
        for key in &self.keys {
            if bool::from(key.digest.ct_eq(&digest)) {
                found = Some(key);
            }
        }
        found.ok_or_else(|| reply::error(401, "authentication_error", Some("invalid_api_key"), "the key is not known"))
    }

    /// A page of somebody else's may have its own name point here (DNS rebinding): only names that are ours are served
    /// without a key.
    fn knows_host(&self, host: Option<&str>) -> bool {
        if !self.keys.is_empty() && !self.is_loopback {
            return true;
        }
        let Some(host) = host else { return false };
        let name = host.trim_start_matches('[').trim_end_matches(']');
        if self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name)) || name.eq_ignore_ascii_case("localhost") {
            return true;
        }
        match name.parse::<IpAddr>() {
            Ok(address) => !self.is_loopback || address.is_loopback(),
            Err(_) => false,
        }
    }

    fn knows_origin(&self, origin: &str, own: Option<&str>) -> bool {
        let is_own = origin.split_once("://").is_some_and(|(_, rest)| Some(rest) == own);
        is_own || self.origins.iter().any(|known| known == origin)
    }
}

/// The name in a Host header, without the port.
fn host_of(header: &str) -> Option<String> {
    let authority: axum::http::uri::Authority = header.parse().ok()?;
    Some(authority.host().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(keys: &[&str], is_loopback: bool) -> Access {
        let keys = keys.iter().map(|key| Key::new(key, false)).collect();
        let origins = vec!["https://ui.perfetto.dev".to_owned()];
        Access { keys, origins, hosts: vec!["gpu.example".to_owned()], is_loopback, shared_cache: false }
    }

    fn status(access: &Access, path: &str, headers: &[(&'static str, &str)]) -> u16 {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(*name, value.parse().expect("a header"));
        }
        access.client(&path.parse().expect("a path"), &all).map_or_else(|error| error.status, |_| 200)
    }

    #[test]
    fn without_keys_only_own_names_are_served() {
        let loopback = access(&[], true);
        for host in ["localhost:8080", "127.0.0.1", "127.0.0.2:1", "[::1]:8080", "LOCALHOST", "gpu.example:80"] {
            assert_eq!(status(&loopback, "/v1/models", &[("host", host)]), 200, "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "", "localhost.evil.example:8080"] {
            assert_eq!(status(&loopback, "/v1/models", &[("host", host)]), 403, "{host}");
        }
        assert_eq!(status(&loopback, "/v1/models", &[]), 403);
        assert_eq!(status(&loopback, "/v1/models", &[("host", "localhost"), ("host", "evil.example")]), 400);
        let open = access(&[], false);
        assert_eq!(status(&open, "/v1/models", &[("host", "10.0.0.1")]), 200);
        assert_eq!(status(&open, "/v1/models", &[("host", "evil.example")]), 403);
    }

    #[test]
    fn pages_of_other_origins_may_not_ask() {
        let access = access(&[], true);
        let check = |origin: &str, want: u16| {
            let headers = [("host", "127.0.0.1:8080"), ("origin", origin)];
            assert_eq!(status(&access, "/v1/chat/completions", &headers), want, "{origin}");
        };
        check("http://127.0.0.1:8080", 200);
        check("https://ui.perfetto.dev", 200);
        for origin in ["http://evil.example", "null", "", "http://127.0.0.1:9090", "http://127.0.0.1:8080.evil.example"]
        {
            check(origin, 403);
        }
    }

    #[test]
    fn keys_guard_every_route_but_health() {
        let access = access(&["one", "two"], true);
        let check = |path: &str, authorization: Option<&str>, want: u16| {
            let mut headers = vec![("host", "localhost")];
            headers.extend(authorization.map(|value| ("authorization", value)));
            assert_eq!(status(&access, path, &headers), want, "{path} {authorization:?}");
        };
        for path in ["/v1/models", "/metrics", "/v1/trace", "/version", "/"] {
            check(path, None, 401);
            check(path, Some("Bearer three"), 401);
            check(path, Some("Basic b25l"), 401);
            check(path, Some("Bearer "), 401);
            check(path, Some("Bearer one"), 200);
            check(path, Some("bearer two"), 200);
        }
        check("/health", None, 200);
    }

    #[test]
    fn tenants_and_salts_differ_by_key_and_do_not_tell_it() {
        let access = access(&["one", "two"], true);
        let client = |key: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("host", "localhost".parse().expect("a header"));
            headers.insert("authorization", format!("Bearer {key}").parse().expect("a header"));
            access.client(&"/".parse().expect("a path"), &headers).expect("known")
        };
        let (one, two) = (client("one"), client("two"));
        assert_ne!(one.tenant, two.tenant);
        assert_ne!(one.salt, two.salt);
        assert_eq!(one.salt, client("one").salt);
        assert!(!one.salt.expect("a salt").contains("one"));
    }
}
