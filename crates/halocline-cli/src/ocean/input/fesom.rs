//! The mesh and the state in the files.

use super::super::geometry::{Vector, on_sphere, triple};
use super::npy::{self, Columns};
use super::text::Numbers;
use super::{InputError, Source};
use std::ops::RangeInclusive;

/// A FESOM mesh and model state. Layer 0 is at the surface. Layer k is between the interfaces k and k + 1.
pub struct Fesom {
    /// Each node as a point of the unit sphere.
    pub nodes: Vec<Vector>,
    /// The three nodes of each triangle, counted from 0, counterclockwise seen from above. Each node has a triangle.
    pub triangles: Vec<[u32; 3]>,
    /// Depth of each level interface, m, negative and falling.
    pub interfaces: Vec<f64>,
    /// Layers above the bottom at each triangle, at least 1.
    pub triangle_layers: Vec<usize>,
    /// Layers above the bottom at each node: the maximum over the adjacent triangles.
    pub node_layers: Vec<usize>,
    /// Potential temperature, deg C, nodes x layers.
    pub temperature: Vec<f32>,
    /// Velocity towards the model's east, m/s, triangles x layers.
    pub u: Vec<f32>,
    /// Velocity towards the model's north, m/s, triangles x layers.
    pub v: Vec<f32>,
}

/// Limit for counts of nodes, triangles and interfaces, larger than any real mesh. A damaged count does not fill the memory.
const MOST: usize = 1 << 28;

/// Limit for velocities, m/s. A faster current is a damaged value or has another unit.
const FASTEST: f32 = 100.0;

/// Valid temperatures, deg C; wide, so that only damaged values are refused.
const TEMPERATURES: RangeInclusive<f32> = -100.0..=1000.0;

/// Minimum thickness of a layer, m.
const THINNEST: f64 = 0.01;

impl Fesom {
    /// Reads all files and checks them against each other.
    pub fn read(source: &Source) -> Result<Self, InputError> {
        let nodes = read_nodes(&source.read("nod2d.out")?)?;
        let triangles = read_triangles(&source.read("elem2d.out")?, &nodes)?;
        let interfaces = read_interfaces(&source.read("aux3d.out")?, nodes.len())?;
        let layers = interfaces.len() - 1;
        let triangle_layers =
            read_layers("nlevels.npy", &source.read("nlevels.npy")?, triangles.len(), layers)?;
        let node_layers = deepest(&triangles, &triangle_layers, nodes.len())?;
        check_node_layers(&source.read("nlevels_nod2D.npy")?, &node_layers, layers)?;

        let columns = |file, of, wet: &[usize], what, range, unit| {
            npy::columns(file, &source.read(file)?, &Columns { of, wet, layers, what, range, unit })
        };
        let velocity =
            |file, what| columns(file, "triangle", &triangle_layers, what, -FASTEST..=FASTEST, "m/s");
        Ok(Self {
            temperature: columns("temp.npy", "node", &node_layers, "a temperature", TEMPERATURES, "deg C")?,
            u: velocity("u.npy", "a velocity to the east")?,
            v: velocity("v.npy", "a velocity to the north")?,
            nodes,
            triangles,
            interfaces,
            triangle_layers,
            node_layers,
        })
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.interfaces.len() - 1
    }
}

fn read_nodes(text: &[u8]) -> Result<Vec<Vector>, InputError> {
    let mut numbers = Numbers::new("nod2d.out", text);
    let count = numbers.integer(3..=MOST, "the number of nodes")?;
    let mut nodes = Vec::new();
    for node in 1..=count {
        numbers.integer(node..=node, "the number of the next node")?;
        let longitude = numbers.real(-360.0..=360.0, "the longitude of a node")?;
        let latitude = numbers.real(-90.0..=90.0, "the latitude of a node")?;
        numbers.integer(0..=usize::MAX, "the coast flag of a node")?;
        nodes.push(on_sphere(longitude, latitude));
    }
    numbers.end()?;
    Ok(nodes)
}

fn read_triangles(text: &[u8], nodes: &[Vector]) -> Result<Vec<[u32; 3]>, InputError> {
    // Twice the area on the unit sphere: that of a triangle of about 10 m.
    const FLAT: f64 = 1e-12;
    let mut numbers = Numbers::new("elem2d.out", text);
    let count = numbers.integer(1..=MOST, "the number of triangles")?;
    let mut triangles = Vec::new();
    for _ in 0..count {
        let mut corner = || numbers.integer(1..=nodes.len(), "a node of a triangle").map(|node| node - 1);
        let [a, b, c] = [corner()?, corner()?, corner()?];
        let area = triple(nodes[a], nodes[b], nodes[c]);
        if area.abs() < FLAT {
            let found = format!("nodes {}, {} and {}", a + 1, b + 1, c + 1);
            return Err(numbers.refuse(found, "the corners of a triangle, not on one line"));
        }
        let [b, c] = if area > 0.0 { [b, c] } else { [c, b] };
        triangles.push([a as u32, b as u32, c as u32]);
    }
    numbers.end()?;
    Ok(triangles)
}

fn read_interfaces(text: &[u8], nodes: usize) -> Result<Vec<f64>, InputError> {
    const DEEPEST: f64 = -12_000.0;
    let mut numbers = Numbers::new("aux3d.out", text);
    let count = numbers.integer(2..=MOST, "the number of level interfaces")?;
    let mut interfaces: Vec<f64> = Vec::new();
    for _ in 0..count {
        let depth = numbers.real(DEEPEST..=0.0, "the depth of a level interface, m")?;
        if interfaces.last().is_some_and(|&above| above - depth < THINNEST) {
            let expected = format!("a depth at least {THINNEST} m below that of the interface before");
            return Err(numbers.refuse(depth.to_string(), &expected));
        }
        interfaces.push(depth);
    }
    for _ in 0..nodes {
        numbers.real(DEEPEST..=0.0, "the bottom depth of a node, m")?;
    }
    numbers.end()?;
    Ok(interfaces)
}

/// Reads numbers of interfaces, and returns numbers of layers.
fn read_layers(
    file: &'static str,
    bytes: &[u8],
    count: usize,
    layers: usize,
) -> Result<Vec<usize>, InputError> {
    let interfaces = npy::integers(file, bytes, &[count], 2, layers as u32 + 1)?;
    Ok(interfaces.into_iter().map(|interfaces| interfaces as usize - 1).collect())
}

/// The layers at each node: the maximum over the adjacent triangles.
fn deepest(triangles: &[[u32; 3]], layers: &[usize], nodes: usize) -> Result<Vec<usize>, InputError> {
    let mut deepest = vec![0; nodes];
    for (corners, &layers) in triangles.iter().zip(layers) {
        for &corner in corners {
            let here: &mut usize = &mut deepest[corner as usize];
            *here = layers.max(*here);
        }
    }
    match deepest.iter().position(|&layers| layers == 0) {
        None => Ok(deepest),
        Some(node) => Err(InputError::Text {
            file: "elem2d.out",
            line: triangles.len() + 1,
            found: "the last triangle".to_owned(),
            expected: format!("a triangle with node {}, which has none", node + 1),
        }),
    }
}

/// Checks the layers of the nodes in the file against those of the triangles.
fn check_node_layers(bytes: &[u8], implied: &[usize], layers: usize) -> Result<(), InputError> {
    let file = "nlevels_nod2D.npy";
    let given = read_layers(file, bytes, implied.len(), layers)?;
    match given.iter().zip(implied).position(|(given, implied)| given != implied) {
        None => Ok(()),
        Some(node) => Err(InputError::Npy {
            file,
            // The elements are the end of the file.
            offset: bytes.len() - 4 * (implied.len() - node),
            found: format!("{} as element {node}", given[node] + 1),
            expected: format!(
                "{}, the maximum of level interfaces over the adjacent triangles",
                implied[node] + 1
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn embedded(name: &'static str) -> String {
        String::from_utf8(Source::Embedded.read(name).unwrap().into_owned()).unwrap()
    }

    /// The embedded file with one piece of text replaced.
    fn changed(name: &'static str, from: &str, to: &str) -> Vec<u8> {
        let text = embedded(name);
        assert!(text.contains(from));
        text.replacen(from, to, 1).into_bytes()
    }

    #[test]
    fn the_embedded_mesh_is_what_it_is_known_to_be() {
        let fesom = Fesom::read(&Source::Embedded).unwrap();
        assert_eq!((fesom.nodes.len(), fesom.triangles.len(), fesom.layers()), (3140, 5839, 47));
        assert_eq!(fesom.node_layers.iter().max(), Some(&45));
        let triangle = |&[a, b, c]: &[u32; 3]| [a, b, c].map(|node| fesom.nodes[node as usize]);
        assert!(fesom.triangles.iter().map(triangle).all(|[a, b, c]| triple(a, b, c) > 0.0));
    }

    #[test]
    fn a_missing_file_is_named() {
        let source = Source::Directory(PathBuf::from("/nowhere"));
        let error = Fesom::read(&source).err().unwrap().to_string();
        assert!(error.starts_with("cannot read /nowhere/nod2d.out: "), "{error}");
    }

    #[test]
    fn every_text_file_cut_short_says_where() {
        let nodes = read_nodes(embedded("nod2d.out").as_bytes()).unwrap();
        for (name, lines) in [("nod2d.out", 1200), ("elem2d.out", 77), ("aux3d.out", 20), ("aux3d.out", 500)]
        {
            let text = embedded(name);
            let cut: String = text.split_inclusive('\n').take(lines).collect();
            let error = match name {
                "nod2d.out" => read_nodes(cut.as_bytes()).err(),
                "elem2d.out" => read_triangles(cut.as_bytes(), &nodes).err(),
                _ => read_interfaces(cut.as_bytes(), nodes.len()).err(),
            };
            let error = error.unwrap().to_string();
            assert!(error.starts_with(&format!("{name} is cut short: it ends in line {lines}, ")), "{error}");
        }
        let error = read_nodes(b"").unwrap_err().to_string();
        assert!(error.starts_with("nod2d.out is cut short: it ends in line 1, where the number of nodes"));
    }

    #[test]
    fn nodes_out_of_order_or_off_the_sphere_are_refused() {
        let error = read_nodes(&changed("nod2d.out", "\n       3 ", "\n       7 ")).unwrap_err().to_string();
        assert_eq!(
            error,
            "nod2d.out, line 4: found \"7\", expected the number of the next node, a whole number from 3 to 3; \
             correct it there"
        );
        let error = read_nodes(&changed("nod2d.out", "74.28292396", "94.28292396")).unwrap_err().to_string();
        assert_eq!(
            error,
            "nod2d.out, line 2: found \"94.28292396\", expected the latitude of a node, a number from -90 to 90; \
             correct it there"
        );
        let error = read_nodes(&changed("nod2d.out", "3140", "3x40")).unwrap_err().to_string();
        assert!(error.starts_with("nod2d.out, line 1: found \"3x40\", expected the number of nodes"));
        // A damaged count is found at the end of the file, not by filling the memory.
        let error = read_nodes(&changed("nod2d.out", "3140", "3140000")).unwrap_err().to_string();
        assert!(error.starts_with("nod2d.out is cut short: it ends in line 3141, "), "{error}");
    }

    #[test]
    fn triangles_with_impossible_corners_are_refused() {
        let nodes = read_nodes(embedded("nod2d.out").as_bytes()).unwrap();
        let message = |text: &[u8]| read_triangles(text, &nodes).unwrap_err().to_string();
        for bad in ["0", "3141", "-1", "1.5", "x"] {
            let error = message(format!("1\n1 2 {bad}\n").as_bytes());
            let expected = "a node of a triangle, a whole number from 1 to 3140";
            assert_eq!(
                error,
                format!("elem2d.out, line 2: found {bad:?}, expected {expected}; correct it there")
            );
        }
        let error = message(b"1\n1 12 1\n");
        let expected = "the corners of a triangle, not on one line";
        assert_eq!(
            error,
            format!("elem2d.out, line 2: found \"nodes 1, 12 and 1\", expected {expected}; correct it there")
        );
        let error = message(b"1\n1 12 2\n1 12 2\n");
        assert_eq!(error, "elem2d.out, line 3: found \"1\", expected the end of the file; correct it there");
    }

    #[test]
    fn a_node_without_a_triangle_is_refused() {
        let error = deepest(&[[0, 1, 3]], &[5], 4).unwrap_err().to_string();
        assert!(
            error.ends_with("expected a triangle with node 3, which has none; correct it there"),
            "{error}"
        );
        assert_eq!(deepest(&[[0, 1, 2], [2, 1, 3]], &[5, 7], 4).unwrap(), [5, 7, 7, 7]);
    }

    #[test]
    fn interfaces_must_go_down() {
        for depth in ["-5", "-10", "-10.001"] {
            let error =
                read_interfaces(format!("3\n0\n-10\n{depth}\n").as_bytes(), 0).unwrap_err().to_string();
            let expected = "a depth at least 0.01 m below that of the interface before";
            assert_eq!(
                error,
                format!("aux3d.out, line 4: found \"{depth}\", expected {expected}; correct it there")
            );
        }
    }

    #[test]
    fn layers_of_a_node_that_its_triangles_do_not_have_are_refused() {
        let fesom = Fesom::read(&Source::Embedded).unwrap();
        let mut bytes = Source::Embedded.read("nlevels_nod2D.npy").unwrap().into_owned();
        let at = bytes.len() - 4 * 3140 + 4 * 10;
        bytes[at] = 5;
        let error = check_node_layers(&bytes, &fesom.node_layers, 47).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("nlevels_nod2D.npy, byte {at}: found 5 as element 10, ")),
            "{error}"
        );
        bytes[at] = 49;
        let error = check_node_layers(&bytes, &fesom.node_layers, 47).unwrap_err().to_string();
        assert!(
            error.ends_with(
                "found 49 as element 10, expected a whole number from 2 to 48; write the file again"
            ),
            "{error}"
        );
    }
}
