//! Grid files of ICON.

use halocline::{IconGrid, Partition};
use std::path::{Path, PathBuf};

/// Opens a file with these bytes, and reads what there is to read.
pub fn icon_grid(bytes: &[u8]) {
    let path = std::env::temp_dir().join(format!("halocline-fuzz-{}.nc", std::process::id()));
    std::fs::write(&path, bytes).expect("a file in the folder of temporary files");
    read(&path);
    std::fs::remove_file(&path).expect("the file is there");
}

fn read(path: &Path) {
    let Ok(grid) = IconGrid::open(path) else { return };
    let _ = grid.read("clon", &[0, 7]);
    let Ok(mesh) = grid.mesh() else { return };
    let cells = mesh.elements().len();
    let Ok(partition) = Partition::block(cells, cells.clamp(1, 3)) else { return };
    for part in 0..partition.ranks() {
        let Ok(part) = grid.part(&partition, part) else { continue };
        let edges = part.halos().edges().domain().cells().len();
        assert!(part.cell_edges().as_flattened().iter().all(|&edge| (edge as usize) < edges));
        assert_eq!(part.edge_cells().len(), edges);
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../data/icon/r2b2.nc");
    vec![std::fs::read(file).expect("the grid of the repository")]
}
