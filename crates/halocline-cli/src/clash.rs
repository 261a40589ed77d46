//! Refuses a file that a command would write over its own input, or over another of its outputs.

use crate::error::CommandError;
use std::io;
use std::path::{Path, PathBuf};

/// A file that an option names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named<'a> {
    /// The option, such as `--trace`.
    pub(crate) option: &'static str,
    pub(crate) path: &'a Path,
}

impl<'a> Named<'a> {
    /// The file of an option, if it is given.
    pub(crate) fn new(option: &'static str, path: Option<&'a Path>) -> Option<Self> {
        path.map(|path| Self { option, path })
    }
}

/// Refuses an output that is the same file as an input or as another output, by whatever path. Call it before anything is written.
pub(crate) fn check(inputs: &[Option<Named<'_>>], outputs: &[Option<Named<'_>>]) -> Result<(), CommandError> {
    for (at, output) in outputs.iter().enumerate() {
        let Some(output) = output else { continue };
        let Some(place) = Place::of(output.path) else { continue };
        let mut others = inputs.iter().chain(&outputs[..at]).flatten();
        if let Some(other) = others.find(|other| Place::of(other.path).as_ref() == Some(&place)) {
            let text = |named: &Named<'_>| format!("{} {}", named.option, named.path.display());
            return Err(CommandError::SameFile {
                output: text(output),
                other: text(other),
                option: output.option,
            });
        }
    }
    Ok(())
}

/// What two paths to one file have in common.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// A file that exists.
    File { device: u64, inode: u64 },
    /// A file to create.
    New(PathBuf),
}

impl Place {
    /// `None` for what a write does not replace, such as pipes and `/dev/null`, and for paths that lead nowhere: opening them says why.
    fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        match path.metadata() {
            Ok(about) if about.is_file() => Some(Self::File { device: about.dev(), inode: about.ino() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = path.parent()?;
                match path.read_link() {
                    // A dangling link: a write creates its target.
                    Ok(target) => Self::of(&folder.join(target)),
                    Err(_) => {
                        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
                        Some(Self::New(folder.canonicalize().ok()?.join(path.file_name()?)))
                    }
                }
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn refused(folder: &Path, input: &str, outputs: [&str; 2]) -> Option<String> {
        let [input, trace, plot] = [input, outputs[0], outputs[1]].map(|name| folder.join(name));
        let outputs = [Named::new("--trace", Some(&trace)), Named::new("--plot", Some(&plot)), None];
        check(&[None, Named::new("--csv", Some(&input))], &outputs).err().map(|error| error.to_string())
    }

    #[test]
    fn one_file_by_two_paths_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::create_dir(folder.join("below")).unwrap();
        std::fs::write(folder.join("v.csv"), "t,v\n").unwrap();
        symlink("v.csv", folder.join("link")).unwrap();
        std::fs::hard_link(folder.join("v.csv"), folder.join("hard")).unwrap();
        symlink("new.png", folder.join("dangling")).unwrap();
        for trace in ["v.csv", "./v.csv", "below/../v.csv", "link", "hard"] {
            let text = refused(folder, "v.csv", [trace, "a.png"]).unwrap();
            assert!(text.contains("--trace") && text.contains("--csv"), "{text}");
            assert!(refused(folder, trace, ["a.json", "v.csv"]).unwrap().contains("--plot"), "{trace}");
        }
        for plot in ["new.png", "./new.png", "below/../new.png", "dangling"] {
            let text = refused(folder, "v.csv", ["new.png", plot]).unwrap();
            assert!(text.contains("--trace") && text.contains("--plot"), "{text}");
        }
        assert_eq!(refused(folder, "v.csv", ["below/v.csv", "a.png"]), None);
        assert_eq!(refused(folder, "/dev/null", ["/dev/null", "/dev/null"]), None);
        assert_eq!(refused(folder, "none/v.csv", ["none/v.csv", "a.png"]), None);
    }
}
