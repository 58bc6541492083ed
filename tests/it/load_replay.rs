//! The replay loop against targets whose answers are known, and the figures that come of it.

use serde_json::Value;
use twostroke::error::{Error, Result};
use twostroke::load::arrivals::Arrivals;
use twostroke::load::dataset::{Dataset, Planned, Prompt, Spec, Vocabulary, Workload};
use twostroke::load::goodput::Goodput;
use twostroke::load::replay::{End, Options, Outcome, Output, Run, Target, run};
use twostroke::load::report::{Report, Settings};

const MS: u64 = 1_000_000;

/// Answers each request after a time of its own, by a virtual clock: a token every `gap`, in chunks.
struct Stub {
    now: u64,
    /// Nanoseconds from submission to the first chunk, by id.
    first: Box<dyn Fn(u64) -> u64>,
    gap: u64,
    chunk: u32,
    /// Takes this long to take a request.
    submit_cost: u64,
    /// What will come out, soonest last.
    coming: Vec<Output>,
    submitted: Vec<(u64, u64)>,
    cancelled: Vec<u64>,
    in_flight: usize,
    peak: usize,
}

impl Stub {
    fn new(first: impl Fn(u64) -> u64 + 'static, gap: u64) -> Self {
        Self {
            now: 0,
            first: Box::new(first),
            gap,
            chunk: 1,
            submit_cost: 0,
            coming: Vec::new(),
            submitted: Vec::new(),
            cancelled: Vec::new(),
            in_flight: 0,
            peak: 0,
        }
    }
}

impl Target for Stub {
    fn submit(&mut self, id: u64, request: &Planned, arrival_nanos: u64) -> Result<()> {
        assert!(arrival_nanos <= self.now, "a request from the future");
        if request.prompt_tokens == 13 {
            return Err(Error::Request("unlucky".into()));
        }
        self.submitted.push((id, self.now));
        self.now += self.submit_cost;
        self.in_flight += 1;
        self.peak = self.peak.max(self.in_flight);
        let (mut nanos, mut left) = (self.now + (self.first)(id), request.output_tokens);
        loop {
            let tokens = left.min(self.chunk);
            left -= tokens;
            let end = (left == 0).then(|| End::Done {
                prompt_tokens: None,
                cached_tokens: 3,
                text: Some(format!("answer {id}")),
            });
            self.coming.push(Output { id, nanos, tokens, end });
            if left == 0 {
                break;
            }
            nanos += self.gap;
        }
        self.coming.sort_by_key(|output| std::cmp::Reverse(output.nanos));
        Ok(())
    }

    fn poll(&mut self, until_nanos: Option<u64>, outputs: &mut Vec<Output>) -> Result<()> {
        let next = self.coming.last().map(|output| output.nanos);
        match (next, until_nanos) {
            (Some(next), until) if until.is_none_or(|until| next <= until) => {
                self.now = self.now.max(next);
                let output = self.coming.pop().expect("the next one");
                self.in_flight -= usize::from(output.end.is_some());
                outputs.push(output);
            }
            (_, Some(until)) => self.now = self.now.max(until),
            _ => return Err(Error::Request("nothing to wait for".into())),
        }
        Ok(())
    }

    fn cancel(&mut self, id: u64) {
        self.cancelled.push(id);
    }

    fn now_nanos(&self) -> u64 {
        self.now
    }
}

fn request(arrival_ms: u64, prompt_tokens: u32, output_tokens: u32) -> Planned {
    let prompt = Prompt::Ids(vec![1; prompt_tokens as usize]);
    Planned { arrival_nanos: arrival_ms * MS, prompt, prompt_tokens, output_tokens }
}

fn play(stub: &mut Stub, warmups: &[Planned], planned: &[Planned], max_concurrency: Option<u32>) -> Run {
    let workload = Workload { warmups: warmups.to_vec(), planned: planned.to_vec() };
    run(stub, &workload, Options { max_concurrency }, &mut |_| true).expect("played")
}

fn settings() -> Settings {
    Settings {
        date: None,
        backend: "stub".into(),
        model_id: "m".into(),
        tokenizer_id: None,
        arrivals: Arrivals::new(f64::INFINITY, 1.0).expect("positive"),
        max_concurrency: None,
        goodput: None,
        percentiles: vec![99.0],
        detailed: false,
    }
}

#[track_caller]
fn near(value: &Value, expected: f64) {
    let got = value.as_f64().unwrap_or_else(|| panic!("{value} is no number"));
    assert!((got - expected).abs() < 1e-9, "{got} is not {expected}");
}

#[test]
fn figures_are_those_of_the_definitions() {
    let mut stub = Stub::new(|id| if id == 0 { 100 } else { 300 } * MS, 20 * MS);
    let run = play(&mut stub, &[], &[request(0, 8, 5), request(50, 10, 3)], None);
    let report = Report::new(&run, &settings());
    near(report.get("mean_ttft_ms"), 200.0);
    near(report.get("median_ttft_ms"), 200.0);
    near(report.get("std_ttft_ms"), 100.0);
    near(report.get("p99_ttft_ms"), 298.0);
    near(report.get("mean_tpot_ms"), 20.0);
    near(report.get("mean_itl_ms"), 20.0);
    near(report.get("max_itl_ms"), 20.0);
    near(report.get("mean_e2el_ms"), (180.0 + 340.0) / 2.0);
    near(report.get("duration"), 0.390);
    near(report.get("output_throughput"), 8.0 / 0.390);
    near(report.get("total_token_throughput"), 26.0 / 0.390);
    for (name, expected) in [
        ("completed", 2),
        ("failed", 0),
        ("total_input_tokens", 18),
        ("total_output_tokens", 8),
        ("cached_tokens", 6),
        ("tpot_samples", 2),
        ("max_concurrent_requests", 2),
        ("max_output_tokens_per_s", 8),
    ] {
        assert_eq!(report.get(name), expected, "{name}");
    }
    assert_eq!(*report.get("request_goodput"), Value::Null, "not asked for");
    assert_eq!(*report.get("request_rate"), "inf");
}

#[test]
fn fields_are_vllms_in_their_order() {
    let run = play(&mut Stub::new(|_| MS, MS), &[], &[request(0, 1, 2)], None);
    let names: Vec<String> = Report::new(&run, &settings()).json().as_object().expect("one").keys().cloned().collect();
    assert_eq!(names, crate::cli_sim::FIELDS);
    let detailed = Report::new(&run, &Settings { detailed: true, ..settings() }).json();
    for name in ["input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors"] {
        assert_eq!(detailed[name].as_array().expect(name).len(), 1, "{name}");
    }
    assert_eq!(detailed["generated_texts"][0], "answer 0");
}

#[test]
fn f12_answers_under_two_tokens_have_no_tpot_and_break_no_mean() {
    let check = |outputs: &[u32], tpot: Option<f64>, samples: u64| {
        let planned: Vec<Planned> = outputs.iter().map(|tokens| request(0, 5, *tokens)).collect();
        let run = play(&mut Stub::new(|_| 10 * MS, 4 * MS), &[], &planned, None);
        let report = Report::new(&run, &settings());
        match tpot {
            Some(tpot) => near(report.get("mean_tpot_ms"), tpot),
            None => ["mean_tpot_ms", "median_tpot_ms", "std_tpot_ms", "p99_tpot_ms", "mean_itl_ms", "max_itl_ms"]
                .iter()
                .for_each(|name| assert_eq!(*report.get(name), Value::Null, "{name}")),
        }
        assert_eq!(report.get("tpot_samples"), samples);
        assert_eq!(report.get("completed"), outputs.len() as u64);
        let text = report.json().to_string() + &report.text();
        assert!(!text.contains("NaN") && !text.to_lowercase().contains("infinity"), "{text}");
    };
    check(&[1, 1, 1], None, 0);
    check(&[0, 0], None, 0);
    check(&[0, 1, 3], Some(4.0), 1);
    check(&[], None, 0);
}

#[test]
fn f15_tokens_are_counted_not_chunks() {
    let mut stub = Stub::new(|_| 80 * MS, 80 * MS);
    stub.chunk = 4;
    let report = Report::new(&play(&mut stub, &[], &[request(0, 5, 400)], None), &settings());
    near(report.get("median_itl_ms"), 20.0);
    near(report.get("mean_itl_ms"), 20.0);
    near(report.get("mean_tpot_ms"), 99.0 * 80.0 / 399.0);
    assert_eq!(report.get("total_output_tokens"), 400);
}

#[test]
fn f16_slots_pass_from_warm_ups_to_measured_requests_without_draining() {
    // Every warm-up takes a second, and one of them two: the slots of the others are not kept waiting for it.
    let mut stub = Stub::new(|id| if id == 3 { 2000 } else if id < 4 { 1000 } else { 100 } * MS, MS);
    let warmups: Vec<Planned> = (0..4).map(|_| request(0, 5, 1)).collect();
    let planned: Vec<Planned> = (0..40).map(|_| request(0, 5, 1)).collect();
    let run = play(&mut stub, &warmups, &planned, Some(4));
    let report = Report::new(&run, &settings());
    near(report.get("p99_ttft_ms"), 100.0);
    assert_eq!(report.get("completed"), 40);
    assert_eq!((run.start_nanos, stub.peak), (1000 * MS, 4));
    near(report.get("duration"), (2000.0 - 1000.0 + 300.0) / 1000.0);

    // Without bounded slots, nothing measured is sent before the last warm-up has ended.
    let mut stub = Stub::new(|id| if id == 3 { 2000 } else { 100 } * MS, MS);
    let run = play(&mut stub, &warmups, &planned, None);
    assert_eq!((run.start_nanos, run.duration_nanos), (2000 * MS, 100 * MS));
}

#[test]
fn latency_counts_from_the_planned_arrival_even_when_the_target_is_slow_to_take() {
    let mut stub = Stub::new(|_| 10 * MS, MS);
    stub.submit_cost = 50 * MS;
    let run = play(&mut stub, &[], &[request(0, 5, 1), request(0, 5, 1), request(10, 5, 1)], None);
    let ttft = |index: usize| (run.answers[index].chunks[0].0 - run.answers[index].arrival_nanos) / MS;
    assert_eq!([ttft(0), ttft(1), ttft(2)], [60, 110, 150]);
}

#[test]
fn waiting_for_a_slot_is_told_apart_and_no_latency() {
    let mut stub = Stub::new(|_| 100 * MS, MS);
    let planned = [request(0, 5, 1), request(10, 5, 1), request(500, 5, 1)];
    let run = play(&mut stub, &[], &planned, Some(1));
    let report = Report::new(&run, &Settings { detailed: true, ..settings() });
    near(report.get("mean_ttft_ms"), 100.0);
    let queued: Vec<f64> =
        report.get("queue_times").as_array().expect("all").iter().filter_map(Value::as_f64).collect();
    assert_eq!(queued, [0.0, 0.09, 0.0]);
    assert_eq!((stub.submitted, stub.peak), (vec![(0, 0), (1, 100 * MS), (2, 500 * MS)], 1));
}

#[test]
fn a_refused_request_counts_as_failed_and_in_nothing_else() {
    for concurrency in [None, Some(1)] {
        let planned = [request(0, 13, 5), request(0, 5, 2), request(0, 13, 5)];
        let run = play(&mut Stub::new(|_| 10 * MS, MS), &[request(0, 13, 1)], &planned, concurrency);
        let report = Report::new(&run, &Settings { detailed: true, ..settings() });
        assert_eq!([report.get("completed"), report.get("failed")], [1, 2]);
        assert_eq!([report.get("total_input_tokens"), report.get("total_output_tokens")], [5, 2]);
        near(report.get("mean_ttft_ms"), 10.0);
        assert!(report.get("errors")[0].as_str().expect("text").contains("unlucky"));
        assert_eq!(report.get("errors")[1], "");
    }
    let run = play(&mut Stub::new(|_| MS, MS), &[], &[request(0, 13, 1)], None);
    assert_eq!(*Report::new(&run, &settings()).get("request_throughput"), Value::Null, "no time passed");
}

#[test]
fn goodput_counts_answers_that_keep_every_limit() {
    let mut stub = Stub::new(|id| if id == 2 { 30 } else { 10 } * MS, 5 * MS);
    let planned = [request(0, 5, 4), request(0, 5, 1), request(0, 5, 4), request(0, 5, 100)];
    let run = play(&mut stub, &[], &planned, None);
    let goodput = Goodput::parse(&["ttft:20".into(), "e2el:100".into()]).expect("fine");
    let report = Report::new(&run, &Settings { goodput, ..settings() });
    let duration = run.duration_nanos as f64 / 1e9;
    near(report.get("request_goodput"), 2.0 / duration);
}

#[test]
fn a_stopped_run_cancels_what_is_open_and_keeps_what_is_done() {
    let mut stub = Stub::new(|id| 10 * MS * (id + 1), MS);
    let planned: Vec<Planned> = (0..5).map(|i| request(i * 15, 5, 1)).collect();
    let workload = Workload { warmups: Vec::new(), planned };
    let run = run(&mut stub, &workload, Options::default(), &mut |progress| progress.done < 2).expect("stopped");
    assert!(run.stopped);
    let done = run.answers.iter().filter(|answer| answer.outcome == Outcome::Done).count();
    assert_eq!(done, 2);
    let open: Vec<u64> = stub.submitted.iter().map(|(id, _)| *id).filter(|id| *id >= 2).collect();
    assert!(!open.is_empty() && stub.cancelled == open, "{:?} of {open:?}", stub.cancelled);
    let report = Report::new(&run, &settings());
    assert_eq!([report.get("completed"), report.get("failed")], [2, 0]);
}

#[test]
fn a_workload_is_the_same_every_time_and_arrives_as_asked() {
    let vocabulary = Vocabulary::new(500, &[0]).expect("ids");
    let dataset = Dataset::Random { input_tokens: 30, output_tokens: 4, range_ratio: 0.5, prefix_tokens: 2 };
    let make = |seed, rate| {
        let arrivals = Arrivals::new(rate, 1.0).expect("positive");
        let spec = Spec { dataset: dataset.clone(), prompts: 20, warmups: 3, arrivals, seed };
        spec.make(&vocabulary, &|_| unreachable!("no text")).expect("made")
    };
    let workload = make(5, 10.0);
    assert_eq!(workload, make(5, 10.0));
    assert_ne!(workload, make(6, 10.0));
    assert_eq!((workload.warmups.len(), workload.planned.len()), (3, 20));
    assert_eq!(workload.planned[19].arrival_nanos, 2_000_000_000);
    let ids = |workload: &Workload| workload.planned.iter().map(|r| r.prompt_ids().into_owned()).collect::<Vec<_>>();
    assert_eq!(ids(&workload), ids(&make(5, f64::INFINITY)), "the rate does not change what is asked");
    assert!(make(5, f64::INFINITY).planned.iter().all(|r| r.arrival_nanos == 0));

    let error = workload.check_context(20).expect_err("too long").to_string();
    assert!(error.contains("request 1") && error.contains("context of 20 tokens"), "{error}");
    workload.check_context(64).expect("fits");
}

#[test]
fn a_trace_comes_at_its_own_times_unless_a_rate_is_given() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.jsonl");
    let line = |t: u64| format!("{{\"timestamp\":{t},\"input_length\":9,\"output_length\":2,\"hash_ids\":[{t}]}}\n");
    std::fs::write(&path, line(1000) + &line(1250)).expect("written");
    let make = |rate| {
        let dataset = Dataset::Mooncake { path: path.clone(), length_scale: 1.0, time_scale: 1.0 };
        let arrivals = Arrivals::new(rate, f64::INFINITY).expect("positive");
        let spec = Spec { dataset, prompts: 1000, warmups: 3, arrivals, seed: 0 };
        spec.make(&Vocabulary::new(99, &[]).expect("ids"), &|_| unreachable!("no text")).expect("made")
    };
    let times = |workload: &Workload| workload.planned.iter().map(|r| r.arrival_nanos / MS).collect::<Vec<_>>();
    assert_eq!(times(&make(f64::INFINITY)), [0, 250]);
    assert_eq!(times(&make(1.0)), [1000, 2000]);
    assert_eq!(make(1.0).warmups.len(), 3);
}
