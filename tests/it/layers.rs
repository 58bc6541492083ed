//! The tree itself: which module may import which, how long a file may be, and where special things may be named.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Modules from the base up; each imports only from those before it. A new module gets its place here.
const LAYERS: [&str; 18] = [
    "limits",
    "error",
    "clock",
    "format",
    "text",
    "recording",
    "kernels",
    "gpu",
    "twin",
    "model",
    "sched",
    "engine",
    "load",
    "trace",
    "sim",
    "server",
    "cli",
    "main",
];
/// Longest file.
const LINES_MAX: usize = 500;

struct File {
    /// Path from the package root, with `/`.
    path: String,
    /// Its text without comments and doc comments.
    code: String,
    lines: usize,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn walk(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            walk(&path, into);
        } else {
            into.push(path);
        }
    }
}

fn files(folder: &str, extension: &str) -> Vec<File> {
    let mut paths = Vec::new();
    walk(&root().join(folder), &mut paths);
    paths.retain(|path| path.extension().is_some_and(|e| e == extension));
    paths.sort();
    assert!(!paths.is_empty(), "no {extension} in {folder}");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let code = text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
        let path = path.strip_prefix(root()).expect("below the root").to_string_lossy().replace('\\', "/");
        File { path, code, lines: text.lines().count() }
    };
    paths.into_iter().map(read).collect()
}

/// The module of the crate root that a file of `src` belongs to.
fn module(path: &str) -> &str {
    let first = path.strip_prefix("src/").and_then(|rest| rest.split('/').next()).expect("a file of src");
    first.trim_end_matches(".rs")
}

fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Top modules that a text names by `crate::`, alone or in braces.
fn imports(code: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.insert(identifier(rest));
            continue;
        };
        let (mut depth, mut start) = (0, true);
        for (i, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => start = true,
                c if start && !c.is_whitespace() => {
                    found.insert(identifier(&group[i..]));
                    start = false;
                }
                _ => {}
            }
        }
    }
    found
}

fn has_word(code: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| !code[..at].ends_with(part) && !code[at + word.len()..].starts_with(part))
}

#[test]
fn modules_import_only_from_the_layers_below() {
    let place = |module: &str| LAYERS.iter().position(|layer| *layer == module);
    let mut wrong = Vec::new();
    for file in files("src", "rs").iter().filter(|file| file.path != "src/lib.rs") {
        let own = module(&file.path);
        let own_place = place(own).unwrap_or_else(|| panic!("{}: {own} has no place in LAYERS", file.path));
        for import in imports(&file.code) {
            // Macros live in the crate's root without being layers.
            if place(import).is_some_and(|at| at > own_place) {
                wrong.push(format!("{} imports crate::{import}", file.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn imports_are_found_alone_and_in_braces() {
    let code = "use crate::format::{a, b};\nuse crate::{\n  text::{x, y},\n  limits,\n};\nlet z = crate::error::f();";
    assert_eq!(imports(code).into_iter().collect::<Vec<_>>(), ["error", "format", "limits", "text"]);
}

#[test]
fn files_are_short_enough_to_read() {
    let all =
        [("src", "rs"), ("tests", "rs"), ("app", "rs"), ("shaders", "wgsl")].map(|(folder, kind)| files(folder, kind));
    let long: Vec<_> = all.iter().flatten().filter(|f| f.lines >= LINES_MAX).map(|f| (&f.path, f.lines)).collect();
    assert!(long.is_empty(), "{LINES_MAX} lines or more: {long:?}");
}

#[test]
fn special_things_are_named_only_where_they_belong() {
    // Two words of a page's content policy.
    let is_unsafe =
        |code: &str| has_word(&code.replace("'unsafe-inline'", "").replace("'wasm-unsafe-eval'", ""), "unsafe");
    let check = |what: &str, in_code: &dyn Fn(&str) -> bool, allowed: &[&str]| {
        let all = files("src", "rs");
        let named = all.iter().filter(|file| in_code(&file.code)).map(|file| &*file.path);
        let wrong: Vec<_> = named.filter(|path| !allowed.iter().any(|part| path.starts_with(part))).collect();
        assert!(wrong.is_empty(), "{what} belongs in {allowed:?}, and is in {wrong:?}");
    };
    check("wgpu", &|code| code.contains("wgpu::"), &["src/gpu/"]);
    // The app knows the engine's public face, and draws through eframe.
    assert!(!files("app", "rs").iter().any(|file| file.code.contains("wgpu::") || is_unsafe(&file.code)));
    check("unsafe", &is_unsafe, &["src/gpu/pipelines.rs"]);
    let per_target = ["src/clock.rs", "src/format/source.rs", "src/gpu/device.rs", "src/lib.rs"];
    check("target_arch", &|code| has_word(code, "target_arch"), &per_target);
}

#[test]
fn the_scheduler_knows_no_float_clock_or_hash_order() {
    for file in files("src/sched", "rs") {
        for word in ["f32", "f64", "clock", "Instant", "SystemTime", "HashMap", "HashSet"] {
            assert!(!has_word(&file.code, word), "{} names {word}", file.path);
        }
    }
}

#[test]
fn every_file_opens_with_what_it_is() {
    let mut bare = Vec::new();
    for file in files("src", "rs").into_iter().chain(files("app", "rs")) {
        let text = fs::read_to_string(root().join(&file.path)).expect("read before");
        if !text.starts_with("//!") {
            bare.push(file.path);
        }
    }
    assert!(bare.is_empty(), "no module head: {bare:?}");
}
