//! Writes where mutation begins: a folder a target, into the folder that is named.

#[path = "../targets.rs"]
mod targets;

fn main() {
    let folder = std::path::PathBuf::from(std::env::args().nth(1).expect("usage: seeds FOLDER"));
    for (name, _, seeds) in targets::all() {
        std::fs::create_dir_all(folder.join(name)).expect("a folder");
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(name).join(format!("seed{number}")), seed).expect("a file");
        }
    }
}
