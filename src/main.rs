//! The binary: everything is in `twostroke::cli`.

fn main() -> std::process::ExitCode {
    twostroke::cli::main()
}
