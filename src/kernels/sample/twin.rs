//! Sampling on the CPU. What comes out is equal to the last bit: masses are integers, and the few float steps are single
//! roundings that no compiler may join. Only how the cut is found differs: the twin sorts, and reads no list.

use super::number::{NONE, below, distance, high, key_from_bits, low, mass, random, share, value_from_key};
use super::stage::{
    BANDS, CHUNK, GREEDY, Job, LIST, LIST_ITEMS, PARTIAL_WORDS, PENALISED, Params, RAW, REPETITION, Stage, TOP_AT,
    TOTAL_AT,
};
use crate::kernels::argmax::NOT_FINITE;

/// Plays one launch.
pub(in crate::kernels) fn twin(stage: Stage, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let p = Params::read(params);
    assert!(grid[0] * grid[1] >= p.workgroups && p.grid_x == grid[0], "grid {grid:?} for {}", p.workgroups);
    for job in p.first_job..p.first_job + p.job_count {
        match (stage, &mut *mem) {
            (Stage::Count, [jobs, history, counts]) => count(&p, &read(jobs, job), history, counts),
            (Stage::Penalise, [logits, jobs, counts, bias]) => penalise(&p, &read(jobs, job), logits, counts, bias),
            (Stage::Scan, [logits, jobs, partials]) => scan(&p, job, &read(jobs, job), logits, partials),
            (Stage::Mass, [logits, jobs, partials, heads]) => {
                sum_mass(&p, job, &read(jobs, job), logits, partials, heads);
            }
            (Stage::Gather, [logits, jobs, partials, lists, heads]) => {
                gather(&p, &read(jobs, job), logits, partials, lists, heads);
            }
            (Stage::Choose, [logits, jobs, partials, _, _, records, history]) => {
                choose(&p, &read(jobs, job), logits, partials, (records, history));
            }
            (stage, mem) => panic!("{stage:?} does not bind {} buffers", mem.len()),
        }
    }
}

fn read(jobs: &[u32], job: u32) -> Job {
    let words = Job::BYTES as usize / 4;
    Job::read(bytemuck::cast_slice(&jobs[job as usize * words..][..words]))
}

/// Bits of the row that a job looks at.
fn row<'a>(p: &Params, row: u32, logits: &'a [u32]) -> &'a [u32] {
    &logits[(row * p.stride) as usize..][..p.dim as usize]
}

fn partial(p: &Params, job: u32, chunk: usize) -> usize {
    (job as usize * p.chunks as usize + chunk) * PARTIAL_WORDS as usize
}

fn count(p: &Params, job: &Job, history: &[u32], counts: &mut [u32]) {
    if job.flags & PENALISED == 0 {
        return;
    }
    let end = job.position.min(p.history_chunks * CHUNK) as usize;
    let tokens = &history[(job.slot * p.context) as usize..][..end];
    for (i, &id) in (0..).zip(tokens).filter(|(_, id)| **id < p.dim) {
        let seen = &mut counts[(job.scratch * p.dim + id) as usize];
        if i >= job.prompt_tokens {
            *seen += 1;
        } else if job.flags & REPETITION != 0 {
            *seen |= 0x8000_0000;
        }
    }
}

fn finite(bits: u32) -> bool {
    f32::from_bits(bits).is_finite()
}

#[allow(clippy::cast_precision_loss, reason = "the shader does the same")]
fn penalise(p: &Params, job: &Job, logits: &mut [u32], counts: &mut [u32], bias: &[u32]) {
    if job.flags & PENALISED == 0 {
        return;
    }
    let mut own = row(p, job.source, logits).to_vec();
    let counts = &mut counts[(job.scratch * p.dim) as usize..][..p.dim as usize];
    for (bits, seen) in own.iter_mut().zip(counts).filter(|(_, seen)| **seen != 0) {
        let count = std::mem::take(seen) & 0x7fff_ffff;
        let x = f32::from_bits(*bits);
        let mut y = x * if x > 0.0 { job.repetition_inverse } else { job.repetition };
        if count != 0 {
            y -= count as f32 * job.frequency;
            y -= job.presence;
        }
        *bits = if finite(*bits) { y.to_bits() } else { *bits };
    }
    let entries = bias.chunks_exact(2).skip(job.bias_start as usize).take(job.bias_count as usize);
    for entry in entries.filter(|entry| entry[0] < p.dim) {
        let bits = &mut own[entry[0] as usize];
        let y = f32::from_bits(*bits) + f32::from_bits(entry[1]);
        *bits = if finite(*bits) { y.to_bits() } else { *bits };
    }
    logits[(job.row * p.stride) as usize..][..p.dim as usize].copy_from_slice(&own);
}

/// Largest key and the lowest position that has it.
fn top(keys: impl Iterator<Item = u32>) -> (u32, u32) {
    let first = |best: (u32, u32), (i, key)| if key > best.0 { (key, i) } else { best };
    (0..).zip(keys).fold((0, NONE), first)
}

fn scan(p: &Params, at: u32, job: &Job, logits: &[u32], partials: &mut [u32]) {
    if job.scan != at {
        return;
    }
    for (chunk, bits) in row(p, job.row, logits).chunks(CHUNK as usize).enumerate() {
        let (key, id) = top(bits.iter().map(|&bits| key_from_bits(bits)));
        let to = partial(p, at, chunk) + TOP_AT as usize;
        let first = u32::try_from(chunk).expect("a vocabulary fits u32") * CHUNK;
        partials[to..to + 2].copy_from_slice(&[key, first + id]);
    }
}

/// Top key of a job's row and its id.
fn top_of(p: &Params, job: &Job, partials: &[u32]) -> (u32, u32) {
    let at = |chunk: u32| partial(p, job.scan, chunk as usize) + TOP_AT as usize;
    let (key, chunk) = top((0..p.chunks).map(|chunk| partials[at(chunk)]));
    (key, partials[at(chunk) + 1])
}

/// Distances of a job's row from its top.
fn distances<'a>(p: &Params, job: &Job, logits: &'a [u32], top_key: u32) -> impl Iterator<Item = u32> + 'a {
    let (top, scale) = (value_from_key(top_key), job.scale);
    row(p, job.row, logits).iter().map(move |&bits| distance(top, f32::from_bits(bits), scale))
}

fn sum_mass(p: &Params, at: u32, job: &Job, logits: &[u32], partials: &mut [u32], heads: &mut [u32]) {
    let (top_key, _) = top_of(p, job, partials);
    if job.flags & GREEDY != 0 || top_key == NONE {
        return;
    }
    let listed = job.flags & LIST != 0;
    if listed {
        heads[job.list as usize] = 0;
    }
    let far: Vec<u32> = distances(p, job, logits, top_key).collect();
    for (chunk, far) in far.chunks(CHUNK as usize).enumerate() {
        let (mut counts, mut masses, mut total) = ([0; BANDS.len()], [0; BANDS.len()], 0_u64);
        for &far in far.iter().filter(|far| **far <= job.min_p) {
            let mass = mass(far);
            total += u64::from(mass);
            for (i, _) in BANDS.iter().enumerate().filter(|(_, band)| listed && far <= **band) {
                counts[i] += 1;
                masses[i] += mass >> 13;
            }
        }
        let words = &mut partials[partial(p, at, chunk)..];
        words[..BANDS.len()].copy_from_slice(&counts);
        words[BANDS.len()..2 * BANDS.len()].copy_from_slice(&masses);
        words[TOTAL_AT as usize..][..2].copy_from_slice(&[low(total), high(total)]);
    }
}

/// Everything that min-p keeps: a list as good as the shader's, in the order of ids.
fn gather(p: &Params, job: &Job, logits: &[u32], partials: &[u32], lists: &mut [u32], heads: &mut [u32]) {
    let (top_key, _) = top_of(p, job, partials);
    if job.flags & LIST == 0 || top_key == NONE {
        return;
    }
    for ((id, far), &bits) in (0..).zip(distances(p, job, logits, top_key)).zip(row(p, job.row, logits)) {
        if far <= job.min_p {
            let head = &mut heads[job.list as usize];
            let at = *head;
            *head += 1;
            if at < LIST_ITEMS {
                let to = 2 * (job.list * LIST_ITEMS + at) as usize;
                lists[to..to + 2].copy_from_slice(&[key_from_bits(bits), id]);
            }
        }
    }
}

/// A candidate.
#[derive(Debug, Clone, Copy)]
struct Item {
    key: u32,
    id: u32,
    mass: u64,
}

fn choose(p: &Params, job: &Job, logits: &[u32], partials: &[u32], out: (&mut [u32], &mut [u32])) {
    let (records, history) = out;
    let (top_key, top_id) = top_of(p, job, partials);
    let record = &mut records[(job.record * p.record_words) as usize..][..p.record_words as usize];
    if job.flags & RAW != 0 {
        record[5] = 0;
        if top_key != NONE {
            write_raw(p, job, logits, top_key, record);
        }
        return;
    }
    let id = match () {
        () if top_key == NONE => NOT_FINITE,
        () if job.flags & GREEDY != 0 => top_id,
        () => draw(job, &candidates(p, job, logits, top_key)),
    };
    let read = if id == NOT_FINITE { 0 } else { id };
    record[0] = id;
    record[1] = row(p, job.source, logits)[read as usize];
    if job.position < p.context {
        history[(job.slot * p.context + job.position) as usize] = read;
    }
}

/// What min-p keeps, in falling order, ties by id.
fn candidates(p: &Params, job: &Job, logits: &[u32], top_key: u32) -> Vec<Item> {
    let all = (0..).zip(distances(p, job, logits, top_key)).zip(row(p, job.row, logits));
    let item = |((id, far), &bits)| Item { key: key_from_bits(bits), id, mass: u64::from(mass(far)) };
    let mut items: Vec<Item> = all.filter(|((_, far), _)| *far <= job.min_p).map(item).collect();
    items.sort_unstable_by_key(|item| (std::cmp::Reverse(item.key), item.id));
    items
}

fn draw(job: &Job, items: &[Item]) -> u32 {
    let mut kept = &items[..items.len().min(job.top_k as usize)];
    let sum = |items: &[Item]| items.iter().map(|item| item.mass).sum::<u64>();
    if job.top_p != NONE {
        let target = share(sum(kept), job.top_p);
        let mut reached = 0;
        let last = kept.iter().position(|item| {
            reached += item.mass;
            reached >= target
        });
        kept = &kept[..=last.expect("all of them reach it")];
    }
    let seed = u64::from(job.seed_high) << 32 | u64::from(job.seed_low);
    let mut left = below(sum(kept), random(seed, job.position, job.choice));
    let mut by_id = kept.to_vec();
    by_id.sort_unstable_by_key(|item| item.id);
    for item in &by_id {
        match left.checked_sub(item.mass) {
            Some(rest) => left = rest,
            None => return item.id,
        }
    }
    unreachable!("less than the whole mass is left at the start")
}

fn write_raw(p: &Params, job: &Job, logits: &[u32], top_key: u32, record: &mut [u32]) {
    let items = candidates(p, job, logits, top_key);
    let total: u64 = items.iter().map(|item| item.mass).sum();
    record[2..5].copy_from_slice(&[value_from_key(top_key).to_bits(), low(total), high(total)]);
    if job.flags & LIST != 0 {
        let tops = &items[..items.len().min(job.top_k as usize)];
        record[5] = u32::try_from(tops.len()).expect("few");
        for (to, item) in record[8..].chunks_exact_mut(2).zip(tops) {
            to.copy_from_slice(&[item.id, value_from_key(item.key).to_bits()]);
        }
    }
}
