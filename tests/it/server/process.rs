//! Starts the server as a person does, and asks it over a socket with no client's help, so that raw bytes are seen.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cli_program::program;

/// Longest that anything may take here; only a hang meets it.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server of its own process; ended when dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    lines: Mutex<mpsc::Receiver<String>>,
    said: Vec<String>,
    /// Sent with every request.
    pub(crate) headers: Vec<(String, String)>,
}

/// What came back.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e} in {:?}", self.body))
    }

    /// Holds the status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    /// Holds that it is an error as clients know them, and gives its object.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        let error = self.json()["error"].clone();
        assert!(error["message"].is_string() && error["type"].is_string(), "{}", self.body);
        assert!(error.get("param").is_some() && error.get("code").is_some(), "{}", self.body);
        error
    }

    /// The events of a stream, without `[DONE]`, which must be the last.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Value> {
        let mut data: Vec<&str> = self.body.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
        assert_eq!(data.pop(), Some("[DONE]"), "{}", self.body);
        data.into_iter().map(|one| serde_json::from_str(one).unwrap_or_else(|e| panic!("{e} in {one:?}"))).collect()
    }
}

/// A connection with a request on it.
pub(crate) struct Open {
    reader: BufReader<TcpStream>,
}

impl Open {
    /// Reads lines until one holds `part`; gives it, or `None` at the end.
    pub(crate) fn line_with(&mut self, part: &str) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line.contains(part) {
                return Some(line);
            }
        }
    }

    /// Everything up to the end of the connection.
    pub(crate) fn rest(mut self) -> String {
        let mut bytes = Vec::new();
        let _ = self.reader.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The whole reply.
    #[track_caller]
    pub(crate) fn reply(self) -> Reply {
        parse(&self.rest())
    }
}

/// Waits until `holds`; a test that waits for ever says nothing.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "in {PATIENCE:?} it never was so that {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn parse(text: &str) -> Reply {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
    let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers: Vec<_> = lines.filter_map(pair).collect();
    let is_chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let body = if is_chunked { unchunked(body) } else { body.to_owned() };
    Reply { status, headers, body }
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).expect("a chunk's size");
        body.push_str(&after[..size]);
        rest = after[size..].strip_prefix("\r\n").expect("the end of a chunk");
    }
    body
}

impl Server {
    /// Starts `serve` on a free port and waits until it answers.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_with(args, |_| ()).ready()
    }

    /// The same as `change` leaves the command, and without waiting.
    pub(crate) fn start_with(args: &[&str], change: impl FnOnce(&mut std::process::Command)) -> Self {
        let mut command = program(&["serve", "--port", "0"]);
        command.args(args);
        change(&mut command);
        Self::spawn(command)
    }

    /// Starts the program at `path`, and waits until it answers.
    pub(crate) fn start_program(path: &std::path::Path, args: &[&str]) -> Self {
        let mut command = std::process::Command::new(path);
        command.args(["serve", "--port", "0"]).args(args);
        Self::spawn(command).ready()
    }

    fn spawn(mut command: std::process::Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stderr = child.stderr.take().expect("piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut server =
            Self { child, address: String::new(), lines: Mutex::new(lines), said: Vec::new(), headers: Vec::new() };
        let line = server.wait_for("listening at http://");
        server.address = line.rsplit("http://").next().expect("an address").to_owned();
        server
    }

    /// Waits until it answers.
    pub(crate) fn ready(mut self) -> Self {
        self.wait_for("ready: ");
        self
    }

    /// Waits until it says `part` on standard error.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, part: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.get_mut().expect("unpoisoned").recv_timeout(left) {
                Ok(line) => {
                    self.said.push(line.clone());
                    if line.contains(part) {
                        return line;
                    }
                }
                Err(_) => panic!("it never said {part:?}, but: {:?}", self.said),
            }
        }
    }

    /// How many lines with `part` were read so far.
    pub(crate) fn times_said(&self, part: &str) -> usize {
        self.said.iter().filter(|line| line.contains(part)).count()
    }

    /// Sends a request and leaves the connection open.
    pub(crate) fn open(&self, method: &str, path: &str, body: Option<&str>) -> Open {
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !self.headers.iter().any(|(name, _)| name == "Host") {
            request += &format!("Host: {}\r\n", self.address);
        }
        for (name, value) in &self.headers {
            request += &format!("{name}: {value}\r\n");
        }
        if let Some(body) = body {
            request += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        request += "\r\n";
        request += body.unwrap_or("");
        self.raw(request.as_bytes())
    }

    /// Sends bytes and leaves the connection open.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Open {
        let mut socket = TcpStream::connect(&self.address).expect("a connection");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // The server may answer and close before it has read everything.
        let _ = socket.write_all(bytes);
        Open { reader: BufReader::new(socket) }
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.open("GET", path, None).reply()
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.open("POST", path, Some(&body.to_string())).reply()
    }

    /// A figure of `/metrics`, all labels summed.
    #[track_caller]
    pub(crate) fn figure(&self, name: &str) -> f64 {
        let text = self.get("/metrics").expect(200).body;
        let lines = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        let values: Vec<f64> =
            lines.map(|line| line.rsplit(' ').next().expect("a value").parse().expect("a number")).collect();
        assert!(!values.is_empty(), "no {name} in {text}");
        values.iter().sum()
    }

    /// Requests that run or wait.
    #[track_caller]
    pub(crate) fn requests(&self) -> f64 {
        self.figure("twostroke:num_requests_running") + self.figure("twostroke:num_requests_waiting")
    }

    /// Waits until nothing runs or waits.
    #[track_caller]
    pub(crate) fn wait_idle(&self) {
        wait_until("it is idle", || self.requests() == 0.0);
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        let sent =
            std::process::Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits for its end; the exit status.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            assert!(Instant::now() < until, "it never ended");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            if let Ok(lines) = self.lines.get_mut() {
                self.said.extend(lines.try_iter());
            }
            eprintln!("the server said: {}", self.said.join("\n"));
        }
    }
}
