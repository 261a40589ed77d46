//! The files of a mesh of two triangles; one file is damaged.

use crate::ocean::input::{Fesom, Source};

/// The number of a file, and its content.
pub fn mesh(bytes: &[u8]) {
    let Some((&which, content)) = bytes.split_first() else { return };
    let mut files = files();
    let at = usize::from(which) % files.len();
    files[at].1 = content.to_vec();
    if let Ok(fesom) = Fesom::read(&Source::Given(files)) {
        let nodes = fesom.nodes.len();
        assert!(fesom.triangles.iter().flatten().all(|&node| (node as usize) < nodes));
        assert_eq!(fesom.temperature.len(), nodes * fesom.layers());
        assert!(fesom.temperature.iter().chain(&fesom.u).chain(&fesom.v).all(|value| value.is_finite()));
        assert!(
            fesom.triangle_layers.iter().chain(&fesom.node_layers).all(|&n| 0 < n && n <= fesom.layers())
        );
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    files().into_iter().zip(0u8..).map(|((_, content), which)| [&[which][..], &content].concat()).collect()
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let text = |text: &str| text.as_bytes().to_vec();
    let integers =
        |values: &[i32]| npy("<i4", &format!("({},)", values.len()), values.iter().map(|v| v.to_le_bytes()));
    let floats =
        |rows: usize| npy("<f4", &format!("({rows}, 2)"), (0..2 * rows).map(|v| (v as f32).to_le_bytes()));
    vec![
        ("nod2d.out", text("4\n1 0.0 0.0 1\n2 10.0 0.0 1\n3 0.0 10.0 0\n4 10.0 10.0 1\n")),
        ("elem2d.out", text("2\n1 2 3\n2 4 3\n")),
        ("aux3d.out", text("3\n0.0\n-10.0\n-20.0\n-20\n-20\n-20\n-10\n")),
        ("nlevels.npy", integers(&[3, 2])),
        ("nlevels_nod2D.npy", integers(&[3, 3, 3, 2])),
        ("temp.npy", floats(4)),
        ("u.npy", floats(2)),
        ("v.npy", floats(2)),
    ]
}

fn npy(dtype: &str, shape: &str, values: impl Iterator<Item = [u8; 4]>) -> Vec<u8> {
    let header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\0", &length[..], header.as_bytes(), &values.flatten().collect::<Vec<u8>>()].concat()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_undamaged_mesh_is_read() {
        let source = crate::ocean::input::Source::Given(super::files());
        assert!(crate::ocean::input::Fesom::read(&source).is_ok());
    }
}
