//! The desktop program.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use twostroke_app::host::Source;
use twostroke_app::settings::Device;
use twostroke_app::{App, Slot, Window};

/// A window that lived this long is no sign of a driver that loses its device at once.
const LIFE: Duration = Duration::from_secs(10);
/// Windows in a row that did not.
const QUICK_MAX: u32 = 3;

/// Both strokes of every request: a timeline of an engine inside, of a running server, of a trace.
#[derive(Parser)]
#[command(name = "twostroke-app", version)]
struct Args {
    /// A trace to open (twostroke serve --trace FILE writes one)
    #[arg(conflicts_with_all = ["model", "server"])]
    trace: Option<PathBuf>,
    /// A model to open: a .gguf file, a folder, hf:ORG/REPO[:FILE], toy or default
    #[arg(long, short)]
    model: Option<String>,
    /// Where it runs: best, twin (the processor, no driver), or a number of `twostroke devices`
    #[arg(long, default_value = "best", value_parser = device)]
    device: Device,
    /// Ask the model this as soon as it is open
    #[arg(long, requires = "model")]
    ask: Option<String>,
    /// A running server to watch: HOST:PORT
    #[arg(long, conflicts_with = "model")]
    server: Option<String>,
    /// Write a picture of the window when all is opened and answered, and end
    #[arg(long, value_name = "FILE.png")]
    picture: Option<PathBuf>,
    /// For tests: before the picture the window's device is lost, as by a driver's reset
    #[arg(long, hide = true, requires = "picture")]
    lose_device: bool,
}

fn device(text: &str) -> Result<Device, String> {
    match text {
        "best" => Ok(Device::Best),
        "twin" => Ok(Device::Twin),
        number => {
            number.parse().map(Device::Adapter).map_err(|_| format!("expected best, twin or a number, got {number}"))
        }
    }
}

fn main() -> ExitCode {
    let args = Arc::new(Args::parse());
    let slot = Slot::default();
    let mut quick = 0;
    loop {
        let began = Instant::now();
        let shown = catch_unwind(AssertUnwindSafe(|| show(&args, &slot)));
        match shown {
            // Its device was lost: the app goes on in the next window.
            _ if slot.is_taken() => {
                quick = if began.elapsed() < LIFE { quick + 1 } else { 0 };
                eprintln!("twostroke-app: the window's graphics device was lost");
                if quick > QUICK_MAX {
                    eprintln!("twostroke-app: again and again; is the driver well?");
                    return ExitCode::FAILURE;
                }
            }
            Ok(Ok(())) => return ExitCode::SUCCESS,
            Ok(Err(error)) => {
                eprintln!("twostroke-app: {error}");
                eprintln!(
                    "It needs a display and a driver for Vulkan, Metal or DX12; the command line (twostroke) needs no display."
                );
                return ExitCode::FAILURE;
            }
            Err(panic) => resume_unwind(panic),
        }
    }
}

/// Shows a window until it is closed.
fn show(args: &Arc<Args>, slot: &Slot) -> eframe::Result {
    let options = eframe::NativeOptions {
        viewport: egui::ViewportBuilder::default().with_title("Twostroke").with_inner_size([1280.0, 800.0]),
        ..eframe::NativeOptions::default()
    };
    let (args, slot) = (Arc::clone(args), slot.clone());
    let make = move |cc: &eframe::CreationContext<'_>| {
        let window = if slot.is_taken() {
            Window::again(&slot, cc)
        } else {
            let mut app = App::new();
            app.show_panels();
            let mut window = Window::new(app, cc);
            begin(&mut window, &args);
            window
        };
        Ok(Box::new(window.left_in(&slot)) as Box<dyn eframe::App>)
    };
    eframe::run_native("twostroke", options, Box::new(make))
}

/// Does what the arguments say.
fn begin(window: &mut Window, args: &Args) {
    let (app, ctx) = (&mut window.app, &window.ctx.clone());
    if args.device != Device::Best {
        app.engine().settings.device = args.device;
    }
    match (&args.trace, &args.server) {
        (Some(path), _) => app.open(path, ctx),
        (_, Some(server)) => app.watch(server, &std::env::var("TWOSTROKE_API_KEY").unwrap_or_default(), ctx),
        _ => app.simulate(),
    }
    match args.model.as_deref() {
        None => {}
        Some("toy") => app.open_model(Source::Toy, ctx),
        Some("default") => app.open_model(Source::Named(None), ctx),
        Some(name) => app.open_model(Source::Named(Some(name.to_owned())), ctx),
    }
    (window.errand.ask, window.errand.picture) = (args.ask.clone(), args.picture.clone());
    window.errand.loses_device = args.lose_device;
}
