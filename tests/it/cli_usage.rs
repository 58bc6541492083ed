//! Flags and exit statuses: 0 done, 1 failed, 2 wrong usage. None of these loads a model.

use crate::adapters;
use crate::cli_program::{program, run, run_with};

#[track_caller]
fn check_usage(line: &str, part: &str) {
    let args: Vec<&str> = line.split(' ').filter(|arg| !arg.is_empty()).collect();
    let ran = run_with(&args, b"").expect(2);
    assert!(ran.stderr.contains(part), "{line}: no {part:?} in {}", ran.stderr);
    assert_eq!(ran.stdout, "", "{line}");
}

#[test]
fn wrong_flags_exit_2_and_say_which() {
    check_usage("", "Usage");
    check_usage("run --nonsense", "--nonsense");
    check_usage("walk", "walk");
    check_usage("score", "--input");
    check_usage("run -p a -f b", "--file");
    check_usage("run -p a --max-tokens 0", "--max-tokens");
    check_usage("run -p a --max-tokens many", "--max-tokens");
    check_usage("run -p a --max-model-len 0", "--max-model-len");
    check_usage("run -p a --temperature -1", "--temperature");
    check_usage("run -p a --temperature nan", "--temperature");
    check_usage("run -p a --temperature 2.5", "--temperature: expected 0 to 2");
    check_usage("run -p a --top-k -2", "--top-k");
    check_usage("run -p a --top-p 0", "--top-p");
    check_usage("run -p a --min-p 1.5", "--min-p");
    check_usage("run -p a --logit-bias 5", "--logit-bias");
    check_usage("run -p a --logit-bias 5:-101", "--logit-bias");
    check_usage("run -p a --presence-penalty 3", "--presence-penalty");
    check_usage("run -p a --frequency-penalty nan", "--frequency-penalty");
    check_usage("run -p a --repetition-penalty 0", "--repetition-penalty");
    check_usage("run-batch -i a", "--output-file");
    check_usage("run-batch -i a -o b --passes 0", "--passes");
    check_usage("run-batch -i a -o b --passes 2 --resume", "--resume");
    check_usage("run-batch -i a -o b --max-num-seqs 0", "--max-num-seqs");
    check_usage("run-batch -i a -o b --itl-slo -5", "--itl-slo");
    check_usage("run-batch -i Cargo.toml -o ./Cargo.toml", "same");
    check_usage("bench --parallel 0", "--parallel");
    check_usage("bench --parallel 5000", "--parallel");
    check_usage("run -p a --kv-memory banana", "64MiB");
    check_usage("run -p a --kv-memory 0", "64MiB");
    check_usage("run -p a --tier warp", "warp");
    check_usage("run -p a --kv-type bf16", "bf16");
    check_usage("run -p a --device twin --tier subgroup", "twin");
    check_usage("run -p a --tier matrix --activations int8", "--activations int8");
    check_usage("run -p a --model hf:", "hf:");
    check_usage("run -p a --raw --system b", "--system");
    check_usage("run -p a --long-prefill-token-threshold 0", "--long-prefill-token-threshold");
    check_usage("bench -p 0 -n 0", "nothing to measure");
    check_usage("bench -p 5-1", "-p");
    check_usage("bench -pg 5", "-pg");
    check_usage("bench -o xml", "xml");
    check_usage("bench -r 0", "--repetitions");
    check_usage("bench -p 512 --max-model-len 100", "--max-model-len");
}

#[test]
fn tier_matrix_on_an_adapter_without_exits_1_and_says_what_it_lacks() {
    for (name, lacks) in [
        ("llvmpipe", "it has no cooperative matrices"),
        ("SwiftShader", "it has subgroups of 4 lanes, 8 are needed, no f16 in shaders, no cooperative matrices"),
    ] {
        let Some(adapter) = adapters::find(name) else { continue };
        let args = ["run", "--model", "toy", "-p", "a", "--device", name, "--tier", "matrix"];
        let ran = run(&args).expect(1);
        ran.says(&["tier matrix on", &adapter.capabilities.name, lacks, "--tier auto"]);
        assert_eq!(adapter.capabilities.cooperative_matrices, [""; 0]);
    }
}

#[test]
fn help_and_version_exit_0() {
    let whole = run(&["--help"]).expect(0).stdout;
    for command in ["run", "run-batch", "serve", "score", "bench", "replay", "sim", "devices", "fetch", "trace"] {
        assert!(whole.contains(&format!("\n  {command} ")), "{whole}");
    }
    for command in ["run", "run-batch", "score", "bench", "replay", "sim", "devices", "fetch"] {
        let help = run(&[command, "--help"]).expect(0).stdout;
        assert_eq!(help.contains("matrix"), help.contains("--tier"), "{help}");
    }
    assert!(run(&["--version"]).expect(0).stdout.starts_with("twostroke "));
}

#[test]
fn control_characters_of_a_message_are_spelled_and_long_ones_cut() {
    let ran = run(&["run", "-p", "a", "--model", "a\u{1b}[31mb.gguf"]).expect(1);
    assert!(!ran.stderr.contains('\u{1b}') && ran.stderr.contains("[31mb"), "{}", ran.stderr);
    let long = "x".repeat(9000);
    assert!(run(&["run", "-p", "a", "--model", &long]).expect(1).stderr.chars().count() < 2100);
}

#[test]
fn a_log_filter_that_does_not_parse_is_named() {
    let mut command = program(&["run", "-p", "a", "--model", "no-such.gguf"]);
    let output = command.env("TWOSTROKE_LOG", "twostroke=louder=x").output().expect("the program runs");
    assert!(String::from_utf8_lossy(&output.stderr).contains("TWOSTROKE_LOG"), "{output:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn help_that_cannot_be_written_exits_1() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
    let output = program(&["--help"]).stdout(full).output().expect("the program runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn a_prompt_that_is_missing_or_not_utf8_exits_1_before_any_model_is_opened() {
    let absent = ["--model", "no-such-model.gguf"];
    let of = |more: &[&'static str], stdin: &[u8]| run_with(&[&["run"], more, &absent[..]].concat(), stdin).expect(1);
    of(&["-f", "no-such-prompt.txt"], b"").says(&["no-such-prompt.txt"]);
    of(&[], b"ab\xffcd").says(&["UTF-8", "0xff", "offset 2", "stdin"]);
    of(&[], b"\xe2\x82").says(&["UTF-8", "offset 0"]);
    of(&["-p", "a"], b"").says(&["no-such-model.gguf", ".gguf"]);
}

#[test]
fn a_default_model_that_is_not_there_names_the_command_that_fetches_it() {
    run(&["run", "-p", "a"]).expect(1).says(&["twostroke fetch"]);
}

#[test]
#[cfg(target_os = "linux")]
fn without_an_adapter_every_command_exits_1_and_says_what_to_install() {
    for args in
        [&["devices"][..], &["devices", "--json"], &["run", "--model", "toy", "-p", "a"], &["bench", "--model", "toy"]]
    {
        let mut command = program(args);
        command.env("VK_DRIVER_FILES", "/nonexistent").env("VK_ICD_FILENAMES", "/nonexistent");
        let output = command.output().expect("the program runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
        assert!(stderr.contains("mesa-vulkan-drivers") && stderr.contains("--device twin"), "{args:?}: {stderr}");
    }
}
