//! Files that are no NetCDF files, are damaged, or lack something.

use super::{Nemo, orca2};
use std::fs;
use std::path::Path;

/// A variable of a file: its name, its dimensions, its attributes and its values.
struct Variable {
    name: &'static str,
    dimensions: Vec<u32>,
    attributes: Vec<(&'static str, Vec<u8>)>,
    /// Floating-point numbers, or characters.
    values: Result<Vec<f32>, Vec<u8>>,
}

fn number(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend((number as u32).to_be_bytes());
}

fn padded(bytes: &mut Vec<u8>, more: &[u8]) {
    bytes.extend(more);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn name(bytes: &mut Vec<u8>, name: &str) {
    number(bytes, name.len());
    padded(bytes, name.as_bytes());
}

impl Variable {
    fn numbers(name: &'static str, dimensions: &[u32], extents: &[u32], bounds: &str) -> Self {
        let count: u32 = dimensions.iter().map(|&dimension| extents[dimension as usize]).product();
        let attribute = ("bounds", bounds.as_bytes().to_vec());
        Self {
            name,
            dimensions: dimensions.to_vec(),
            attributes: vec![attribute],
            values: Ok(vec![0.0; count as usize]),
        }
    }

    fn data(&self) -> Vec<u8> {
        let mut data = Vec::new();
        match &self.values {
            Ok(numbers) => numbers.iter().for_each(|number| data.extend(number.to_be_bytes())),
            Err(text) => padded(&mut data, text),
        }
        data
    }

    fn header(&self, begin: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        name(&mut bytes, self.name);
        number(&mut bytes, self.dimensions.len());
        self.dimensions.iter().for_each(|&dimension| number(&mut bytes, dimension as usize));
        number(&mut bytes, 12);
        number(&mut bytes, self.attributes.len());
        for (attribute, text) in &self.attributes {
            name(&mut bytes, attribute);
            number(&mut bytes, 2);
            number(&mut bytes, text.len());
            padded(&mut bytes, text);
        }
        number(&mut bytes, if self.values.is_ok() { 5 } else { 2 });
        number(&mut bytes, self.data().len());
        number(&mut bytes, begin);
        bytes
    }
}

/// A file of the classic format.
fn file(extents: &[u32], variables: &[Variable]) -> Vec<u8> {
    let mut bytes = b"CDF\x01\0\0\0\0".to_vec();
    number(&mut bytes, 10);
    number(&mut bytes, extents.len());
    for (dimension, &extent) in extents.iter().enumerate() {
        name(&mut bytes, ["y", "x", "nvertex", "deptht"][dimension]);
        number(&mut bytes, extent as usize);
    }
    bytes.extend([0; 8]);
    number(&mut bytes, 11);
    number(&mut bytes, variables.len());
    let headers: usize = variables.iter().map(|variable| variable.header(0).len()).sum();
    let mut begin = bytes.len() + headers;
    for variable in variables {
        bytes.extend(variable.header(begin));
        begin += variable.data().len();
    }
    variables.iter().for_each(|variable| bytes.extend(variable.data()));
    bytes
}

fn variables(extents: &[u32]) -> Vec<Variable> {
    let mut field = Variable::numbers("votemper", &[3, 0, 1], extents, "");
    field.attributes = vec![("missing_value", b"?".to_vec())];
    vec![
        Variable::numbers("nav_lon", &[0, 1], extents, "bounds_lon"),
        Variable::numbers("nav_lat", &[0, 1], extents, "bounds_lat"),
        Variable::numbers("bounds_lon", &[0, 1, 2], extents, ""),
        Variable::numbers("bounds_lat", &[0, 1, 2], extents, ""),
        field,
    ]
}

/// The message of the error of a file with these bytes.
fn refused(bytes: &[u8]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("grid.nc");
    fs::write(&path, bytes).unwrap();
    let message = Nemo::read(&path).err().expect("the file is wrong").to_string();
    message.replace(directory.path().to_str().unwrap(), "")
}

#[test]
fn what_a_file_lacks_is_named() {
    let extents = [4, 6, 4, 2];
    let changed = |change: &dyn Fn(&mut Vec<Variable>)| {
        let mut variables = variables(&extents);
        change(&mut variables);
        refused(&file(&extents, &variables))
    };
    let expect = |found: String, due: &str| assert!(found.starts_with(due), "{found}");
    expect(
        changed(&|all| _ = all.remove(0)),
        "/grid.nc has no variable nav_lon; give a file as NEMO's output has it",
    );
    expect(changed(&|all| _ = all.remove(1)), "/grid.nc has no bounds of nav_lat; ");
    expect(changed(&|all| all[0].attributes.clear()), "/grid.nc has no bounds of nav_lon; ");
    expect(changed(&|all| _ = all.remove(3)), "/grid.nc has no bounds of nav_lat; ");
    expect(changed(&|all| all[4].attributes.clear()), "/grid.nc has no field with fill values on land; ");
    let flat = |all: &mut Vec<Variable>| all[0] = Variable::numbers("nav_lon", &[0], &extents, "bounds_lon");
    expect(
        changed(&flat),
        "variable nav_lon of /grid.nc has the shape [4]; it needs two dimensions: rows and columns",
    );
    let three = |all: &mut Vec<Variable>| all[3] = Variable::numbers("bounds_lat", &[0, 1, 3], &extents, "");
    expect(
        changed(&three),
        "variable bounds_lat of /grid.nc has the shape [4, 6, 2]; it needs four corners for each row and column",
    );
    let text = |all: &mut Vec<Variable>| all[2].values = Err(vec![b'?'; 96]);
    let found = changed(&text);
    assert!(
        found.starts_with("cannot read variable bounds_lon of /grid.nc: ")
            && found.ends_with("; write the file again"),
        "{found}"
    );
    // All corners are at one point.
    expect(
        changed(&|_| ()),
        "the corners of the cell in row 0, column 0 of /grid.nc are not counterclockwise",
    );
}

#[test]
fn grids_that_cannot_be_folded_are_refused() {
    for (extents, size) in [
        ([4, 5, 4, 1], "4 rows and 5 columns"),
        ([3, 6, 4, 1], "3 rows and 6 columns"),
        ([4, 2, 4, 1], "4 rows and 2 columns"),
    ] {
        let found = refused(&file(&extents, &variables(&extents)));
        assert_eq!(
            found,
            format!(
                "the grid of /grid.nc has {size}; give 4 to 16384 rows and an even number of 4 to 16384 columns"
            )
        );
    }
}

#[test]
fn files_that_cannot_be_opened_are_refused() {
    let of = |path: &str| Nemo::read(Path::new(path)).err().expect("no file").to_string();
    let none = of("nowhere/orca.nc");
    assert!(none.starts_with("cannot read the grid nowhere/orca.nc: No such file or directory"), "{none}");
    assert_eq!(
        of("/dev/zero"),
        "cannot read the grid /dev/zero: it is no regular file; check its name, or give a NetCDF file of NEMO"
    );
    for bytes in [b"".as_slice(), b"CDF", b"nav_lon = 1, 2, 3", b"\x89HDF\r\n\x1a\n"] {
        let found = refused(bytes);
        assert!(found.starts_with("cannot read the grid /grid.nc: "), "{found}");
    }
}

/// What a damaged file says is refused, or is the grid of a file: nothing panics.
#[test]
fn damaged_files_are_refused() {
    let bytes = fs::read(orca2()).unwrap();
    for part in 0..50 {
        let found = refused(&bytes[..bytes.len() * part / 50]);
        assert!(found.contains("/grid.nc"), "{found}");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("grid.nc");
    let mut seed = 1u64;
    let mut next = |below: usize| {
        // Numerical Recipes' generator.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let mut refused = 0;
    for round in 0..120 {
        let mut damaged = bytes.clone();
        // The header is as likely as the data.
        let end = if round % 2 == 0 { 8192 } else { damaged.len() };
        for _ in 0..1 + round % 3 {
            let at = next(end);
            damaged[at] ^= 1 << next(8);
        }
        fs::write(&path, damaged).unwrap();
        refused += usize::from(Nemo::read(&path).is_err());
    }
    assert!(refused > 20, "{refused} of 120");
}
