//! Hugging Face folders whose safetensors, index or JSON files are broken.

use serde_json::{Value, json};

use super::Stage::Format;
use super::{Case, base_folder, folder_case};
use crate::model_writer::{Files, SafetensorsWriter};

pub(super) fn add(cases: &mut Vec<Case>) {
    add_files(cases);
    add_header_lengths(cases);
    add_header_texts(cases);
    add_entries(cases);
    add_ranges(cases);
    add_indexes(cases);
    add_configs(cases);
}

/// The content of a file of the folder.
pub(super) fn file<'a>(files: &'a mut Files, name: &str) -> &'a mut Vec<u8> {
    &mut files.iter_mut().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// The base folder with another `model.safetensors`.
fn weights(cases: &mut Vec<Case>, name: &str, bytes: Vec<u8>, expect: &[&str]) {
    let mut files = base_folder(1);
    *file(&mut files, "model.safetensors") = bytes;
    cases.push(folder_case(Format, name, files, &[expect, &["model.safetensors"]].concat()));
}

fn add_files(cases: &mut Vec<Case>) {
    let mut without = |name: &str, expect: &[&str]| {
        let mut files = base_folder(1);
        files.retain(|f| f.0 != name);
        cases.push(folder_case(Format, &format!("no {name}"), files, expect));
    };
    without("config.json", &["config.json"]);
    without("model.safetensors", &["model.safetensors or model.safetensors.index.json"]);
    cases.push(folder_case(Format, "nothing in it", Vec::new(), &["config.json"]));
    let mut open = |name: &str, open: &str, expect: &[&str]| {
        let case = folder_case(Format, name, base_folder(1), expect);
        cases.push(Case { open: open.into(), ..case });
    };
    open("one of its files is opened", "model.safetensors", &["a .gguf file or a Hugging Face folder"]);
    open("its configuration is opened", "config.json", &["a .gguf file or a Hugging Face folder"]);
    open("a file that is not there is opened", "other.gguf", &["open: ", "other.gguf"]);
    let mut whole = base_folder(1);
    let whole = std::mem::take(file(&mut whole, "model.safetensors"));
    for cut in [1, 64, 65, 2048] {
        let bytes = whole[..whole.len() - cut].to_vec();
        weights(cases, &format!("weights cut by {cut} bytes"), bytes, &["file length", "tensor model."]);
    }
    for len in [0, 1, 7] {
        weights(cases, &format!("weights of {len} bytes"), whole[..len].to_vec(), &["8 bytes of length"]);
    }
    for len in [8, 9, 100] {
        weights(
            cases,
            &format!("weights of {len} bytes"),
            whole[..len].to_vec(),
            &["header length", "end of the file"],
        );
    }
    weights(
        cases,
        "one byte behind the last tensor",
        [&whole[..], b"x"].concat(),
        &["data section", "its end at byte"],
    );
    weights(cases, "a GGUF as weights", b"GGUF\x03\0\0\0\0\0\0\0".to_vec(), &["header length"]);
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n".to_vec();
    weights(cases, "a git-lfs pointer as weights", pointer, &["header length"]);
}

fn add_header_lengths(cases: &mut Vec<Case>) {
    let good = SafetensorsWriter::file("{}", &[]);
    for length in [u64::MAX, u64::MAX - 8, 1 << 63, 1 << 40, (100 << 20) + 1] {
        let bytes = [&length.to_le_bytes()[..], &good[8..]].concat();
        weights(cases, &format!("header length {length}"), bytes, &["header length", "at most", &length.to_string()]);
    }
    for length in [9u64, 1 << 20, 100 << 20] {
        let bytes = [&length.to_le_bytes()[..], &good[8..]].concat();
        let expect = ["header length", &length.to_string(), "end of the file"];
        weights(cases, &format!("header length {length}"), bytes, &expect);
    }
    weights(cases, "header length 0", vec![0; 8], &["safetensors header"]);
}

fn add_header_texts(cases: &mut Vec<Case>) {
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    let a = r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
    let twice = format!(r#"{{"a":{a},"a":{a}}}"#);
    let escaped = format!(r#"{{"a":{a},"\u0061":{a}}}"#);
    let extra = format!(r#"{{"a":{a}}} {{}}"#);
    let open = format!(r#"{{"a":{a}"#);
    let metadata = format!(r#"{{"__metadata__":{{"n":1}},"a":{a}}}"#);
    let metadata_list = format!(r#"{{"__metadata__":[],"a":{a}}}"#);
    let metadata_twice = format!(r#"{{"__metadata__":{{}},"__metadata__":{{}},"a":{a}}}"#);
    for (name, header, expect) in [
        ("header that is no JSON", "hello", "safetensors header"),
        ("header that is a list", "[]", "an object of tensors"),
        ("header that is null", "null", "an object of tensors"),
        ("header that is not closed", &open, "EOF"),
        ("header with text behind it", &extra, "trailing characters"),
        ("header nested 100,000 deep", &deep, "tensor a"),
        ("tensor twice", &twice, "tensor a twice"),
        ("tensor twice, once escaped", &escaped, "tensor a twice"),
        ("metadata with a number", &metadata, "__metadata__"),
        ("metadata as a list", &metadata_list, "__metadata__"),
        ("metadata twice", &metadata_twice, "__metadata__ twice"),
    ] {
        weights(cases, name, SafetensorsWriter::file(header, &[0; 4]), &["safetensors header", expect]);
    }
    let bad = [&8u64.to_le_bytes()[..], b"{\"\xff\":1}", &[0; 4]].concat();
    weights(cases, "header of bad UTF-8", bad, &["safetensors header", "unicode"]);
    weights(cases, "header of zeros", [&64u64.to_le_bytes()[..], &[0; 64]].concat(), &["safetensors header"]);
    weights(cases, "no tensors but data", SafetensorsWriter::file("{}", &[0; 4]), &["data section"]);
}

/// Entries of one tensor `w` that contradict themselves.
fn add_entries(cases: &mut Vec<Case>) {
    let mut entry = |name: &str, entry: Value, expect: &[&str]| {
        let bytes = SafetensorsWriter::file(&json!({"w": entry}).to_string(), &[0; 16]);
        weights(cases, name, bytes, &[expect, &["tensor w"]].concat());
    };
    let whole = json!({"dtype": "F32", "shape": [4], "data_offsets": [0, 16]});
    let with = |key: &str, value: Value| {
        let mut entry = whole.clone();
        entry[key] = value;
        entry
    };
    for key in ["dtype", "shape", "data_offsets"] {
        let mut entry_without = whole.clone();
        entry_without.as_object_mut().expect("an object").remove(key);
        entry(&format!("entry without {key}"), entry_without, &["missing field", key]);
        entry(&format!("entry with null for {key}"), with(key, Value::Null), &["safetensors header"]);
    }
    entry("null for an entry", Value::Null, &["null"]);
    for dtype in ["Q4_0", "f32", "F33", ""] {
        entry(&format!("dtype {dtype:?}"), with("dtype", json!(dtype)), &["unknown variant", dtype]);
    }
    for (dtype, len) in [("I64", 2), ("I32", 4), ("U8", 16), ("BOOL", 16), ("F64", 2), ("F8_E4M3", 16)] {
        let other = json!({"dtype": dtype, "shape": [len], "data_offsets": [0, 16]});
        entry(&format!("dtype {dtype} that is not computed"), other, &["dtype", dtype, "not supported"]);
    }
    entry("dtype of another size", with("dtype", json!("F16")), &["tensor size", "8 bytes", "[0, 16]"]);
    for (name, shape, expect) in [
        ("shape of 5 axes", json!([1, 1, 1, 1, 4]), "at most 4 axes"),
        ("negative axis", json!([-4]), "-4"),
        ("axis with a fraction", json!([4.0]), "floating point"),
        ("axis above 2^64", json!([1e30]), "invalid"),
        ("axis as text", json!(["4"]), "invalid type"),
        ("shape as a number", json!(4), "axes"),
        ("zero axis", json!([0, 4]), "axes of 1 or more"),
        ("zero axis behind", json!([4, 0]), "axes of 1 or more"),
        ("axes whose product overflows", json!([u64::MAX, 2]), "a product below 2^64"),
        ("axes whose product overflows to 0", json!([1u64 << 32, 1u64 << 32]), "a product below 2^64"),
        ("size that overflows", json!([1u64 << 62]), "below 2^61"),
        ("shape of less than its range", json!([3]), "12 bytes"),
        ("shape of more than its range", json!([2, 3]), "24 bytes"),
        ("shape of far more than its range", json!([1u64 << 40]), "tensor size"),
    ] {
        entry(name, with("shape", shape), &[expect]);
    }
    for (name, offsets, expect) in [
        ("one data offset", json!([16]), "invalid length 1"),
        ("three data offsets", json!([0, 16, 16]), "trailing"),
        ("data offsets backwards", json!([16, 0]), "data_offsets [16, 0]"),
        ("data offset below zero", json!([-1, 15]), "-1"),
        ("data offsets of 2^64 - 1", json!([u64::MAX, u64::MAX]), "data_offsets"),
        ("data offsets around 2^64", json!([u64::MAX - 15, 0]), "data_offsets"),
        ("data offsets that wrap in the file", json!([u64::MAX - 16, u64::MAX]), "offset"),
        ("data offsets past the end", json!([1u64 << 40, (1u64 << 40) + 16]), "file length"),
        ("data offsets one past the end", json!([1, 17]), "file length"),
    ] {
        entry(name, with("data_offsets", offsets), &[expect]);
    }
}

/// Several tensors of 4 floats over 48 bytes.
fn add_ranges(cases: &mut Vec<Case>) {
    let mut ranges = |name: &str, offsets: &[(&str, u64)], expect: &[&str]| {
        let tensors: serde_json::Map<String, Value> = offsets
            .iter()
            .map(|&(name, at)| (name.to_owned(), json!({"dtype": "F32", "shape": [4], "data_offsets": [at, at + 16]})))
            .collect();
        let bytes = SafetensorsWriter::file(&Value::Object(tensors).to_string(), &[0; 48]);
        weights(cases, name, bytes, expect);
    };
    ranges("two tensors in one place", &[("a", 0), ("b", 0), ("c", 16)], &["overlap", "tensors a and b"]);
    ranges("tensor over the end of another", &[("a", 0), ("b", 12), ("c", 28)], &["overlap", "tensors a and b"]);
    ranges("overlap in another order", &[("c", 30), ("b", 16), ("a", 0)], &["overlap", "tensors b and c"]);
    ranges("hole at the begin", &[("a", 16), ("b", 32)], &["data section", "tensor a"]);
    ranges("hole in the middle", &[("a", 0), ("b", 32)], &["data section", "tensor b"]);
    ranges("hole at the end", &[("a", 0), ("b", 16)], &["data section", "its end at byte"]);
    ranges("tensor without a name", &[("", 0), ("b", 16), ("c", 32)], &["tensor name", "an empty one"]);
    ranges("tensor name with a line break", &[("a\nb", 0), ("b", 16), ("c", 32)], &["printable text", "a\\nb"]);
    let long = "n".repeat(1025);
    ranges("tensor name of 1025 bytes", &[(&long, 0), ("b", 16), ("c", 32)], &["tensor name", "1025 bytes"]);
}

fn add_indexes(cases: &mut Vec<Case>) {
    const INDEX: &str = "model.safetensors.index.json";
    let norm = "model.norm.weight";
    let mut map = |name: &str, change: &dyn Fn(&mut serde_json::Map<String, Value>), expect: &[&str]| {
        let mut files = base_folder(3);
        let index = file(&mut files, INDEX);
        let mut json: Value = serde_json::from_slice(index).expect("ours");
        change(json["weight_map"].as_object_mut().expect("an object"));
        *index = json.to_string().into_bytes();
        cases.push(folder_case(Format, name, files, expect));
    };
    for shard in
        ["../model-00001-of-00003.safetensors", "/etc/hostname", "a/b.safetensors", "..", ".", "", "a\\b", "a\nb"]
    {
        let expect = [INDEX, "file names in the same folder"];
        map(&format!("shard {shard:?}"), &|m| drop(m.insert(norm.into(), json!(shard))), &expect);
    }
    let lost = "model-00009-of-00009.safetensors";
    map("shard that is not there", &|m| drop(m.insert(norm.into(), json!(lost))), &["no such file", lost]);
    map(
        "tensor that no shard has",
        &|m| drop(m.insert("w".into(), json!("model-00001-of-00003.safetensors"))),
        &["model-00001-of-00003.safetensors, tensor w", "promises"],
    );
    map(
        "tensor in another shard",
        &|m| drop(m.insert(norm.into(), json!("model-00001-of-00003.safetensors"))),
        &["model-00001-of-00003.safetensors", norm],
    );
    map("number for a shard", &|m| drop(m.insert(norm.into(), json!(1))), &[INDEX, norm]);
    map("no tensors", &|m| m.clear(), &[INDEX, "no tensors"]);
    map(
        "another file of the folder as a shard",
        &|m| drop(m.insert(norm.into(), json!("config.json"))),
        &["config.json"],
    );
    map(
        "600 shards",
        &|m| (0..600).for_each(|i| drop(m.insert(format!("t{i}"), json!(format!("s{i}"))))),
        &[INDEX, "at most 512 shards"],
    );
    for (name, text, expect) in [
        ("index that is no JSON", "hello", "weight_map"),
        ("empty index", "", "EOF"),
        ("index that is a list", "[]", "weight_map"),
        ("index without a weight_map", r#"{"metadata":{}}"#, "no weight_map"),
        ("weight_map that is a list", r#"{"weight_map":[]}"#, "weight_map"),
        ("weight_map twice", r#"{"weight_map":{"a":"x"},"weight_map":{"a":"x"}}"#, "weight_map twice"),
        ("tensor twice in the index", r#"{"weight_map":{"a":"x","a":"y"}}"#, "tensor a twice"),
        ("index with text behind it", r#"{"weight_map":{"a":"x"}} x"#, "trailing"),
    ] {
        let mut files = base_folder(3);
        *file(&mut files, INDEX) = text.as_bytes().to_vec();
        cases.push(folder_case(Format, name, files, &[INDEX, expect]));
    }
    let shard = "model-00002-of-00003.safetensors";
    let mut removed = base_folder(3);
    removed.retain(|f| f.0 != shard);
    cases.push(folder_case(Format, "one shard less", removed, &["no such file", shard]));
    let mut cut = base_folder(3);
    let bytes = file(&mut cut, shard);
    bytes.truncate(bytes.len() - 1);
    cases.push(folder_case(Format, "shard cut by a byte", cut, &["file length", shard, "tensor model."]));
    let mut empty = base_folder(3);
    file(&mut empty, shard).clear();
    cases.push(folder_case(Format, "empty shard", empty, &[shard, "8 bytes of length"]));
    let mut swapped = base_folder(3);
    let other = file(&mut swapped, "model-00003-of-00003.safetensors").clone();
    *file(&mut swapped, shard) = other;
    cases.push(folder_case(
        Format,
        "shard with the content of another",
        swapped,
        &[shard, "promises", "tensor model."],
    ));
}

fn add_configs(cases: &mut Vec<Case>) {
    for name in ["config.json", "generation_config.json", "tokenizer_config.json"] {
        let deep = "[".repeat(100_000);
        for (what, text) in [
            ("empty", ""),
            ("cut", "{\"model_type\": \"lla"),
            ("no JSON", "model_type: llama"),
            ("a list", "[{}]"),
            ("null", "null"),
            ("a number", "7"),
            ("nested 100,000 deep", &deep),
        ] {
            let mut files = base_folder(1);
            files.retain(|f| f.0 != name);
            files.push((name.to_owned(), text.as_bytes().to_vec()));
            cases.push(folder_case(Format, &format!("{name} that is {what}"), files, &[name, "a JSON object"]));
        }
    }
    let mut large = base_folder(1);
    file(&mut large, "config.json").resize((8 << 20) + 1, b' ');
    cases.push(folder_case(
        Format,
        "config.json of 8 MiB",
        large,
        &["config.json", "at most 8388608 bytes", "8388609"],
    ));
    let mut latin = base_folder(1);
    latin.push(("chat_template.jinja".into(), b"caf\xe9".to_vec()));
    cases.push(folder_case(Format, "chat template of bad UTF-8", latin, &["chat_template.jinja", "a bad byte at 3"]));
    let mut latin = base_folder(1);
    *file(&mut latin, "config.json") = b"{\"model_type\": \"\xff\"}".to_vec();
    cases.push(folder_case(Format, "config.json of bad UTF-8", latin, &["config.json", "unicode"]));
}
