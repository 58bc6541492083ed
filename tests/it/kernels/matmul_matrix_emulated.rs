//! The text of `matmul_matrix.wgsl` on drivers without cooperative matrices: its five instructions replaced by loops, its halves by
//! rounded floats, its subgroups by runs of lanes of any width. What is left is the shader's own: staging, dequantisation, barriers,
//! turns of wide subgroups, tails, outputs. Whether a driver's matrices multiply is not seen here.

use twostroke::error::Result;
use twostroke::gpu::{GpuPlayer, Options};
use twostroke::kernels::matmul::matrix;
use twostroke::kernels::program::Program;
use twostroke::kernels::{Kernel, Spec, Tier};
use twostroke::recording::{BufferId, Command, Dispatch, Played, Player, Recording, Ticket};
use twostroke::twin::Twin;

use super::matmul::{Inputs, check};
use super::matmul_matrix::{cases, reference, run};
use super::{assert_same_bits, rounds_like_twin};
use crate::adapters::for_each_adapter;

/// A kernel with its matrices emulated by subgroups of `width` lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Emulated {
    shape: matrix::Shape,
    width: u32,
}

impl Emulated {
    fn kernel(self) -> Kernel {
        Kernel::MatmulMatrix(self.shape)
    }
}

/// Matrices as handles of where they are staged, sums as each lane's share of elements.
const FUNCTIONS: &str = "
var<private> lane: u32;
fn rounded(value: f32) -> f32 { return unpack2x16float(pack2x16float(vec2<f32>(value, 0.0))).x; }
fn load_sum(at: u32, stride: u32) -> array<f32, OWN> {
    var sum: array<f32, OWN>;
    for (var j = 0u; j < OWN; j += 1u) {
        let e = lane + WIDTH * j;
        sum[j] = sums[at + (e / SIZE) * stride + e % SIZE];
    }
    return sum;
}
fn store_sum(sum: array<f32, OWN>, at: u32, stride: u32) {
    var own = sum;
    for (var j = 0u; j < OWN; j += 1u) {
        let e = lane + WIDTH * j;
        sums[at + (e / SIZE) * stride + e % SIZE] = own[j];
    }
}
fn multiply_add(x: vec2<u32>, w: vec2<u32>, sum: array<f32, OWN>) -> array<f32, OWN> {
    var own = sum;
    for (var j = 0u; j < OWN; j += 1u) {
        let e = lane + WIDTH * j;
        var step = 0.0;
        for (var k = 0u; k < SIZE; k += 1u) {
            step += x_tile[x.x + (e / SIZE) * x.y + k] * w_tile[w.x + (e % SIZE) * w.y + k];
        }
        own[j] += step;
    }
    return own;
}
";

impl Program for Emulated {
    fn spec(self) -> Spec {
        let spec = self.kernel().spec();
        Spec { label: format!("{}_by_{}", spec.label, self.width), tier: Tier::Base, ..spec }
    }

    fn wgsl(self) -> String {
        let (size, lanes) = (u32::from(self.shape.size), self.kernel().spec().invocations);
        let mut text = self.kernel().wgsl();
        let mut replace = |from: &str, to: &str| {
            assert!(text.contains(from), "no {from:?} in the shader");
            text = text.replace(from, to);
        };
        replace("enable f16;\nenable wgpu_cooperative_matrix;\n", "");
        replace("array<f16,", "array<f32,");
        replace("-> f16 {", "-> f32 {");
        replace("return f16(", "return rounded(");
        replace("    @builtin(subgroup_id) subgroup: u32,\n    @builtin(num_subgroups) subgroups: u32,\n", "");
        let (width, turns) = (self.width, lanes / self.width);
        let begin = format!(
            "let subgroup = local / {width}u;\n    let subgroups = {turns}u;\n    lane = local % {width}u;\n    "
        );
        replace("let tile = workgroup.y", &format!("{begin}let tile = workgroup.y"));
        let matrix = format!("coop_mat{size}x{size}");
        replace(&format!("coopLoadT<{matrix}<f32,C>>(&sums["), "load_sum(");
        replace(&format!("coopLoadT<{matrix}<f16,A>>(&x_tile["), "vec2<u32>(");
        replace(&format!("coopLoad<{matrix}<f16,B>>(&w_tile["), "vec2<u32>(");
        replace("coopMultiplyAdd(", "multiply_add(");
        replace("coopStoreT(", "store_sum(");
        replace(", &sums[", ", ");
        replace("], 40u)", ", 40u)");
        replace("], 64u)", ", 64u)");
        let code = |line: &str| line.split("//").next().is_some_and(|code| code.contains("coop"));
        assert!(!text.lines().any(code), "an instruction is not emulated:\n{text}");
        let own = format!("{}u", size * size / width);
        let functions = FUNCTIONS.replace("OWN", &own).replace("WIDTH", &format!("{width}u"));
        text + &functions.replace("SIZE", &format!("{size}u"))
    }

    fn twin(self, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
        self.kernel().twin(params, grid, mem);
    }
}

/// Plays products by matrices on an adapter that has none.
struct Emulator {
    inner: GpuPlayer<Emulated>,
    width: u32,
}

impl Player<Kernel> for Emulator {
    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId> {
        self.inner.create_buffer(label, bytes)
    }
    fn drop_buffer(&mut self, buffer: BufferId) {
        self.inner.drop_buffer(buffer);
    }
    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        self.inner.write(buffer, offset, data)
    }
    fn submit(&mut self, recording: &Recording<Kernel>) -> Result<Ticket> {
        let mut emulated = Recording { params: recording.params.clone(), ..Recording::new() };
        emulated.uploads.clone_from(&recording.uploads);
        emulated.commands.extend(recording.commands.iter().map(|command| match command.clone() {
            Command::Upload { buffer, offset, start, bytes } => Command::Upload { buffer, offset, start, bytes },
            Command::Read { buffer, offset, bytes } => Command::Read { buffer, offset, bytes },
            Command::Dispatch(Dispatch { kernel, bindings, params_offset, params_bytes, grid }) => {
                let Kernel::MatmulMatrix(shape) = kernel else { panic!("{kernel:?} needs no emulation") };
                let kernel = Emulated { shape, width: self.width };
                Command::Dispatch(Dispatch { kernel, bindings, params_offset, params_bytes, grid })
            }
        }));
        self.inner.submit(&emulated)
    }
    fn poll(&mut self, ticket: Ticket) -> Result<Option<Played>> {
        self.inner.poll(ticket)
    }
    fn wait(&mut self, ticket: Ticket) -> Result<Played> {
        self.inner.wait(ticket)
    }
    fn prepare(&mut self, _kernels: &[Kernel]) -> Result<()> {
        Ok(())
    }
    fn binding_bytes_max(&self) -> u64 {
        self.inner.binding_bytes_max()
    }
    fn buffer_bytes_max(&self) -> u64 {
        self.inner.buffer_bytes_max()
    }
    fn adapter(&self) -> &str {
        self.inner.adapter()
    }
}

/// Lanes of a subgroup: as of Intel, NVIDIA and Apple, AMD, and one that has all lanes of a workgroup.
const WIDTHS: [u32; 5] = [8, 16, 32, 64, 128];

#[test]
fn the_text_of_products_by_matrices_is_right_for_subgroups_of_any_width() {
    let full = std::env::var_os("TWOSTROKE_FULL").is_some();
    for_each_adapter::<Emulated>(|label, open| {
        if !label.ends_with("base") {
            return;
        }
        let mut emulator = Emulator { inner: open(Options { checked: true, ..Options::default() }), width: 0 };
        for (i, (case, size)) in cases().into_iter().enumerate() {
            if !full && !i.is_multiple_of(if label.contains("llvmpipe") { 3 } else { 9 }) {
                continue;
            }
            // Sizes of 8 have no share of an element for 128 lanes.
            let fits: Vec<u32> =
                WIDTHS.into_iter().filter(|width| *width <= u32::from(size) * u32::from(size)).collect();
            emulator.width = fits[i % fits.len()];
            let inputs = Inputs::new(case);
            let what = format!("{label}, matrices of {size} by subgroups of {}", emulator.width);
            let got = run(&inputs, &mut emulator, size, 0, case.rows);
            check(&what, &inputs, &reference(&inputs), &got);
            if rounds_like_twin(label) && case.gate.is_none() {
                let twin = run(&inputs, &mut Twin::new(), size, 0, case.rows);
                assert_same_bits(&format!("{what}, {case:?}"), &got, &twin);
            }
        }
    });
}
