//! What was measured of the GPUs here: files beside the compiled kernels.

use super::cache;
use super::inventory::{Gpu, Inventory};
use crate::tuning::{Machine, Origin, Tuned, Tuning};
use std::path::{Path, PathBuf};

/// Longer files are none of ours.
const MOST: u64 = 64 << 10;

impl Inventory {
    /// What values of a GPU are measured of.
    pub fn machine(&self, gpu: &Gpu) -> Machine {
        let (major, minor) = self.version;
        let driver = format!("{major}.{minor}");
        Machine { gpu: gpu.name.clone(), driver, multiprocessors: gpu.multiprocessors }
    }
}

/// The values in force for a machine of some compute capability (90 for 9.0): of a file in [`super::cache_directory`], else built-in ones.
/// Reads that file.
pub fn tuned(machine: &Machine, capability: u32) -> Tuned {
    let built_in = Tuned::built_in(capability);
    match cache::directory() {
        Some(directory) => tuned_in(&directory, machine, built_in),
        None => built_in,
    }
}

fn tuned_in(directory: &Path, machine: &Machine, built_in: Tuned) -> Tuned {
    let path = directory.join(file_name(machine));
    let found = match cache::read_ours(&path, MOST) {
        Ok(None) => return built_in,
        Ok(Some(text)) => machine.read(&text),
        Err(why) => Err(why),
    };
    match (found, built_in) {
        (Ok(values), _) => Tuned { values, origin: Origin::File(path) },
        (Err(why), Tuned { values, origin: Origin::BuiltIn(built_in) }) => {
            Tuned { values, origin: Origin::Refused { built_in, path, why } }
        }
        (Err(_), other) => other,
    }
}

/// Keeps values of a machine where [`tuned`] finds them; returns the file. Fails where no directory is named, or it cannot be written.
pub fn keep_tuning(machine: &Machine, values: &Tuning) -> std::io::Result<PathBuf> {
    let Some(directory) = cache::directory() else {
        return Err(std::io::Error::new(
            std::io::ErrorKind::NotFound,
            "no directory is named; set HALOCLINE_CACHE, XDG_CACHE_HOME or HOME",
        ));
    };
    keep_in(&directory, machine, values)
}

fn keep_in(directory: &Path, machine: &Machine, values: &Tuning) -> std::io::Result<PathBuf> {
    let name = file_name(machine);
    cache::write_whole(directory, &name, machine.write(values).as_bytes())?;
    Ok(directory.join(name))
}

fn file_name(machine: &Machine) -> String {
    let Machine { gpu, driver, multiprocessors } = machine;
    format!("{:016x}.tuning.json", cache::hash(format!("{gpu}\n{driver}\n{multiprocessors}").as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::super::cache::tests::Scratch;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn machine(multiprocessors: u32) -> Machine {
        Machine { gpu: "A GPU".to_owned(), driver: "13.0".to_owned(), multiprocessors }
    }

    fn why(tuned: &Tuned) -> Option<&str> {
        match &tuned.origin {
            Origin::Refused { why, .. } => Some(why),
            _ => None,
        }
    }

    #[test]
    fn what_is_kept_is_in_force_for_that_machine_alone() {
        let scratch = Scratch::new("tuned-kept");
        let here = |of: u32| tuned_in(&scratch.0, &machine(of), Tuned::built_in(90));
        assert_eq!(here(132), Tuned::built_in(90));
        let values = Tuning { waiting: 25, ..Tuning::HOPPER };
        let path = keep_in(&scratch.0, &machine(132), &values).expect("ours");
        assert_eq!(here(132), Tuned { values, origin: Origin::File(path) });
        assert_eq!(here(16), Tuned::built_in(90));
    }

    #[test]
    fn a_file_that_is_cut_or_of_others_is_refused_and_told_and_built_in_values_hold() {
        let scratch = Scratch::new("tuned-refused");
        let path = keep_in(&scratch.0, &machine(1), &Tuning { waiting: 25, ..Tuning::OTHER }).expect("ours");
        let here = || tuned_in(&scratch.0, &machine(1), Tuned::built_in(80));
        let whole = std::fs::read(&path).expect("kept");
        std::fs::write(&path, &whole[..whole.len() / 2]).expect("ours");
        let cut = here();
        assert!(cut.values == Tuning::OTHER && why(&cut).is_some_and(|why| why.contains("EOF")), "{cut:?}");
        assert!(cut.origin.to_string().contains("is not taken: EOF"), "{}", cut.origin);
        std::fs::write(&path, vec![b' '; MOST as usize + 1]).expect("ours");
        assert_eq!(why(&here()), Some("it is longer than 65536 bytes"));
        std::fs::write(&path, &whole).expect("ours");
        assert_eq!(here().values.waiting, 25);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("ours");
        assert_eq!(why(&here()), Some("others could have written it"));
        std::fs::remove_file(&path).expect("ours");
        // A directory, or a pipe, in its place keeps nobody waiting.
        std::fs::create_dir(&path).expect("ours");
        assert_eq!(why(&here()), Some("it is no file"));
        std::fs::remove_dir(&path).expect("ours");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .expect("ours");
        assert_eq!(why(&here()), Some("it is no file"));
    }
}
