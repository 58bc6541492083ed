//! `serve`: its flags and what they mean.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::Args;

use super::args::ModelArgs;
use super::batch_args::{BatchArgs, BatchOptions};
use super::options::ModelOptions;
use crate::error::{Error, Result};
use crate::limits::{QUEUE_MAX, WATCHDOG_SECONDS};
use crate::server::http::{Access, Key};

/// Where keys are looked for beside the flags.
const KEY_VARIABLE: &str = "TWOSTROKE_API_KEY";

/// `serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Clients of OpenAI's API need nothing but its address: OPENAI_BASE_URL=http://127.0.0.1:8080/v1, and any OPENAI_API_KEY where none is
asked for. /metrics is for Prometheus, /v1/trace streams what the engine does, /health says whether it is ready.
SIGTERM and Ctrl-C take nothing new and let answers finish; a second one ends it at once.

Examples:
  twostroke serve
  twostroke serve --served-model-name gpt-4o --port 8000
  TWOSTROKE_API_KEY=secret twostroke serve --host 0.0.0.0")]
pub(super) struct ServeArgs {
    /// Address to listen at
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub(super) host: String,
    /// Port to listen at; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub(super) port: u16,
    /// Key that clients must send; several may be given. The environment's TWOSTROKE_API_KEY counts too, and other users cannot read
    /// that one
    #[arg(long, value_name = "KEY")]
    pub(super) api_key: Vec<String>,
    /// Keys, one a line; the word `priority` behind a key lets its requests choose their priority
    #[arg(long, value_name = "FILE")]
    pub(super) api_key_file: Option<PathBuf>,
    /// Names that requests may use for the model; the first is told. Absent: the model's own
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1..)]
    pub(super) served_model_name: Vec<String>,
    /// Requests that may wait; more are sent away with 429
    #[arg(long, value_name = "N", default_value_t = QUEUE_MAX, value_parser = queue)]
    pub(super) max_queue: usize,
    /// Seconds that answers may take to finish when the server is told to stop
    #[arg(long, value_name = "SECS", default_value_t = 30)]
    pub(super) drain: u64,
    /// Seconds that a step may take while work waits before /health says 503
    #[arg(long, value_name = "SECS", default_value_t = WATCHDOG_SECONDS, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(super) watchdog: u64,
    /// Listen beyond this machine without asking for a key
    #[arg(long)]
    pub(super) insecure: bool,
    /// Let requests of all keys share cached prompts; how long an answer takes then tells a key what others asked
    #[arg(long)]
    pub(super) shared_cache: bool,
    /// Origins of web pages that may ask, such as https://example.org
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',')]
    pub(super) allowed_origins: Vec<String>,
    /// Names by which this machine is reached, where no key is asked for
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(super) allowed_hosts: Vec<String>,
    #[command(flatten, next_help_heading = "Batching")]
    pub(super) batch: BatchArgs,
    #[command(flatten, next_help_heading = "Model and adapter")]
    pub(super) model: ModelArgs,
}

fn queue(text: &str) -> std::result::Result<usize, String> {
    text.parse().ok().filter(|n| (1..=QUEUE_MAX).contains(n)).ok_or_else(|| format!("expected 1 to {QUEUE_MAX}"))
}

/// What the flags mean.
pub(super) struct ServeOptions {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) names: Vec<String>,
    pub(super) drain_seconds: u64,
    pub(super) watchdog_nanos: u64,
    pub(super) access: Access,
    pub(super) batch: BatchOptions,
    pub(super) model: ModelOptions,
}

impl ServeOptions {
    /// # Errors
    /// `Usage` for an address beyond this machine without a key, a key that is none, or a name that is empty; `Io` for a key
    /// file that cannot be read.
    pub(super) fn new(args: &ServeArgs) -> Result<Self> {
        let model = ModelOptions::new(&args.model)?;
        let keys = keys(args)?;
        let is_loopback = is_loopback(&args.host);
        if !is_loopback && keys.is_empty() && !args.insecure {
            let host = &args.host;
            let message = format!(
                "--host {host} is reached from other machines: give a key ({KEY_VARIABLE}, --api-key-file or --api-key), or say --insecure"
            );
            return Err(Error::Usage(message));
        }
        if let Some(bad) = args.served_model_name.iter().find(|name| name.trim().is_empty()) {
            return Err(Error::Usage(format!("--served-model-name: expected names, got {bad:?}")));
        }
        let is_origin = |origin: &&String| origin.contains("://") && !origin.ends_with('/') && *origin != "*";
        if let Some(bad) = args.allowed_origins.iter().find(|origin| !is_origin(origin)) {
            let message = format!("--allowed-origins: expected origins such as https://example.org, got {bad}");
            return Err(Error::Usage(message));
        }
        let is_name = |name: &&String| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
        };
        if let Some(bad) = args.allowed_hosts.iter().find(|name| !is_name(name)) {
            let message = format!("--allowed-hosts: expected names without port, such as gpu.example.org, got {bad:?}");
            return Err(Error::Usage(message));
        }
        Ok(Self {
            host: args.host.clone(),
            port: args.port,
            names: args.served_model_name.clone(),
            drain_seconds: args.drain,
            watchdog_nanos: args.watchdog * 1_000_000_000,
            access: Access {
                keys,
                origins: args.allowed_origins.clone(),
                hosts: args.allowed_hosts.clone(),
                is_loopback,
                shared_cache: args.shared_cache,
            },
            batch: BatchOptions { queue_max: args.max_queue, ..args.batch.meant(model.trace.clone())? },
            model,
        })
    }
}

/// Whether only this machine reaches a host.
fn is_loopback(host: &str) -> bool {
    if let Ok(address) = host.parse::<IpAddr>() {
        return address.is_loopback();
    }
    (host, 0).to_socket_addrs().is_ok_and(|addresses| addresses.into_iter().all(|address| address.ip().is_loopback()))
}

fn keys(args: &ServeArgs) -> Result<Vec<Key>> {
    let mut keys = Vec::new();
    let mut add = |place: &str, text: &str, may_prioritise: bool| {
        let is_key = !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
        if !is_key {
            return Err(Error::Usage(format!("{place}: expected a key of visible ASCII characters without spaces")));
        }
        keys.push(Key::new(text, may_prioritise));
        Ok(())
    };
    for key in &args.api_key {
        add("--api-key", key, false)?;
    }
    if let Some(key) = std::env::var_os(KEY_VARIABLE).filter(|key| !key.is_empty()) {
        add(KEY_VARIABLE, &key.to_string_lossy(), false)?;
    }
    if let Some(path) = &args.api_key_file {
        let text = std::fs::read_to_string(path).map_err(|source| Error::io("read keys", path, source))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let before = lines.clone().count();
        for line in lines {
            match line.split_once(char::is_whitespace).map(|(key, word)| (key, word.trim())) {
                None => add("--api-key-file", line, false)?,
                Some((key, "priority")) => add("--api-key-file", key, true)?,
                Some((_, word)) => {
                    let message = format!("--api-key-file: expected a key and at most the word priority, got {word:?}");
                    return Err(Error::Usage(message));
                }
            }
        }
        if before == 0 {
            return Err(Error::Usage(format!("--api-key-file: no key in {}", path.display())));
        }
    }
    Ok(keys)
}
