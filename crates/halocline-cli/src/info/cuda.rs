//! GPUs, the links between them, and the libraries that they need.

use super::binary_size;
use halocline_device::cuda::{Compiler, Inventory, Nccl, cache_directory, inventory, nccl};
use serde_json::{Value, json};
use std::path::PathBuf;

/// The CUDA components of this machine, or why they are missing.
#[derive(Debug)]
pub(super) struct Cuda {
    inventory: Result<Inventory, String>,
    /// Version of NVRTC, and where it was found.
    compiler: Result<((i32, i32), PathBuf), String>,
    cache: Option<PathBuf>,
    /// Not needed by this program.
    nccl: Result<Nccl, String>,
}

/// Searches for GPUs, NVRTC and NCCL in this process. Blocks while the driver initialises.
pub(super) fn gather() -> Cuda {
    let inventory = inventory();
    let found = inventory.as_ref().map_or_else(|_| Compiler::load(), |all| Compiler::load_for(all.version));
    let compiler = found.map(|compiler| (compiler.version(), compiler.path().to_owned()));
    let inventory = inventory.map_err(|why| why.to_string());
    Cuda {
        inventory,
        compiler: compiler.map_err(|why| why.to_string()),
        cache: cache_directory(),
        nccl: nccl(),
    }
}

impl Cuda {
    pub(super) fn to_json(&self) -> Value {
        let (driver, gpus) = match &self.inventory {
            Ok(Inventory { version, gpus, links }) => {
                let links = links.iter().map(|link| {
                    json!({"from": link.from, "to": link.to, "access": link.access, "atomics": link.atomics})
                });
                let gpus = gpus.iter().map(|gpu| {
                    json!({
                        "name": gpu.name,
                        "memory_bytes": gpu.memory,
                        "multiprocessors": gpu.multiprocessors,
                        "capability": gpu.capability,
                    })
                });
                let (gpus, links): (Vec<Value>, Vec<Value>) = (gpus.collect(), links.collect());
                let version = format!("{}.{}", version.0, version.1);
                (json!({"works": true, "cuda": version, "links": links}), gpus)
            }
            Err(why) => (json!({"works": false, "error": why}), Vec::new()),
        };
        let nvrtc = match &self.compiler {
            Ok(((major, minor), path)) => {
                json!({"works": true, "version": format!("{major}.{minor}"), "path": path})
            }
            Err(why) => json!({"works": false, "error": why}),
        };
        let nccl = match &self.nccl {
            Ok(Nccl { version: (major, minor, patch), path }) => {
                json!({"works": true, "version": format!("{major}.{minor}.{patch}"), "path": path})
            }
            Err(why) => json!({"works": false, "error": why}),
        };
        json!({"driver": driver, "gpus": gpus, "nvrtc": nvrtc, "cache": self.cache, "nccl": nccl})
    }

    pub(super) fn to_text(&self) -> Vec<String> {
        let mut lines = Vec::new();
        match &self.inventory {
            Ok(inventory) => {
                for (ordinal, gpu) in inventory.gpus.iter().enumerate() {
                    lines.push(format!(
                        "{ordinal}  {}, {}, {} multiprocessors, compute capability {}.{}",
                        gpu.name,
                        binary_size(gpu.memory),
                        gpu.multiprocessors,
                        gpu.capability / 10,
                        gpu.capability % 10,
                    ));
                }
                for link in inventory.links.iter().filter(|link| link.from < link.to) {
                    let how = match (link.access, link.atomics) {
                        (true, true) => "reach each other's memory, with atomic operations (as over NVLink)",
                        (true, false) => {
                            "reach each other's memory, without atomic operations (as over PCIe)"
                        }
                        _ => "do not reach each other's memory: copies go through the host",
                    };
                    lines.push(format!("{} and {} {how}", link.from, link.to));
                }
                let (major, minor) = inventory.version;
                lines.push(format!("driver for CUDA {major}.{minor}"));
            }
            Err(why) => lines.push(format!("none: {why}")),
        }
        match &self.compiler {
            Ok(((major, minor), path)) => lines.push(format!("NVRTC {major}.{minor} ({})", path.display())),
            Err(why) => lines.push(why.clone()),
        }
        match &self.cache {
            Some(directory) => lines.push(format!("cache of compiled kernels: {}", directory.display())),
            None => lines.push(
                "compiled kernels are not cached: HALOCLINE_CACHE is off, or HOME is not set".to_owned(),
            ),
        }
        match &self.nccl {
            Ok(Nccl { version: (major, minor, patch), path }) => {
                lines.push(format!("NCCL {major}.{minor}.{patch} ({}), optional", path.display()));
            }
            Err(why) => lines.push(format!("{why}; it is optional")),
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline_device::cuda::{Gpu, Link};

    #[test]
    fn gpus_and_links_are_told_and_what_is_missing_with_its_reason() {
        let gpu = Gpu { name: "A GPU".into(), memory: 3 << 30, multiprocessors: 7, capability: 90 };
        let link = |from, to| Link { from, to, access: true, atomics: from + to != 3 };
        let links = vec![link(0, 1), link(1, 0), link(1, 2), link(2, 1)];
        let mut cuda = Cuda {
            inventory: Ok(Inventory { version: (13, 0), gpus: vec![gpu.clone(), gpu], links }),
            compiler: Err(
                "the kernels of Halocline cannot be compiled or loaded for this GPU: nothing there".into(),
            ),
            cache: Some("/a/cache".into()),
            nccl: Ok(Nccl { version: (2, 28, 9), path: "libnccl.so.2".into() }),
        };
        let text = cuda.to_text().join("\n");
        let expected = "0  A GPU, 3 GiB, 7 multiprocessors, compute capability 9.0\n\
            1  A GPU, 3 GiB, 7 multiprocessors, compute capability 9.0\n\
            0 and 1 reach each other's memory, with atomic operations (as over NVLink)\n\
            1 and 2 reach each other's memory, without atomic operations (as over PCIe)\n\
            driver for CUDA 13.0\n\
            the kernels of Halocline cannot be compiled or loaded for this GPU: nothing there\n\
            cache of compiled kernels: /a/cache\n\
            NCCL 2.28.9 (libnccl.so.2), optional";
        assert_eq!(text, expected);
        assert_eq!(cuda.to_json()["driver"]["links"][2]["to"], json!(2));
        cuda.inventory = Err("CUDA cannot be used: no driver".into());
        assert_eq!(cuda.to_text()[0], "none: CUDA cannot be used: no driver");
        assert_eq!(cuda.to_json()["driver"]["works"], json!(false));
        cuda.nccl = Err("NCCL was not found (no such file)".into());
        assert_eq!(cuda.to_text().last().unwrap(), "NCCL was not found (no such file); it is optional");
        assert_eq!(cuda.to_json()["nccl"]["works"], json!(false));
    }
}
