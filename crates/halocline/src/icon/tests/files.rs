//! Grid files for tests, of the command, too: the tables of triangles, and files in the classic formats of NetCDF.

use std::collections::BTreeMap;

/// The values of a variable of a file.
#[derive(Clone)]
pub(super) enum Values {
    Int(Vec<i32>),
    Double(Vec<f64>),
    Text(Vec<u8>),
}

/// A variable of a file: its dimensions, which have these names, and its values in C order.
#[derive(Clone)]
pub(super) struct Variable {
    pub(super) dimensions: Vec<&'static str>,
    pub(super) values: Values,
}

/// The content of a file.
#[derive(Clone)]
pub(super) struct Content {
    pub(super) dimensions: BTreeMap<&'static str, usize>,
    pub(super) variables: BTreeMap<&'static str, Variable>,
}

/// A table column by column, counted from 0.
pub(super) type Columns = Vec<Vec<i32>>;

impl Content {
    /// The grid file of triangles. Edges are numbered in the opposite order of their vertices.
    pub(super) fn of(vertices: usize, triangles: &[[u32; 3]]) -> Self {
        let corners: Columns = triangles.iter().map(|c| c.map(|vertex| vertex as i32).to_vec()).collect();
        let mut ends: Columns = Vec::new();
        for cell in &corners {
            for side in 0..3 {
                let (from, to) = (cell[side], cell[(side + 1) % 3]);
                ends.push(vec![from.min(to), from.max(to)]);
            }
        }
        ends.sort_unstable_by(|a, b| b.cmp(a));
        ends.dedup();
        let edge_between = |a: i32, b: i32| -> i32 {
            ends.partition_point(|edge| edge[..] > [a.min(b), a.max(b)][..]) as i32
        };
        let mut edge_of_cell = Columns::new();
        let mut adjacent = vec![Vec::new(); ends.len()];
        let mut around = vec![Vec::new(); vertices];
        for (number, cell) in (0..).zip(&corners) {
            let edges = [0, 1, 2].map(|side| edge_between(cell[(side + 1) % 3], cell[(side + 2) % 3]));
            edges.iter().for_each(|&edge| adjacent[edge as usize].push(number));
            cell.iter().for_each(|&vertex| around[vertex as usize].push(number));
            edge_of_cell.push(edges.to_vec());
        }
        // The directions of edges differ from the order of their vertices.
        ends.iter_mut().step_by(3).for_each(|ends| ends.reverse());
        adjacent.iter_mut().step_by(2).for_each(|cells| cells.reverse());
        let mut content = Self { dimensions: BTreeMap::new(), variables: BTreeMap::new() };
        content.add("vertex_of_cell", ("nv", 3), "cell", &corners);
        content.add("edge_of_cell", ("nv", 3), "cell", &edge_of_cell);
        content.add("edge_vertices", ("nc", 2), "edge", &ends);
        content.add("adjacent_cell_of_edge", ("nc", 2), "edge", &adjacent);
        content.add("cells_of_vertex", ("ne", 6), "vertex", &around);
        let numbers = (0..corners.len()).map(|cell| cell as f64 / 4.0).collect();
        content.set("clon", &["cell"], Values::Double(numbers));
        content
    }

    /// Adds a table whose columns have at most so many rows.
    fn add(
        &mut self,
        name: &'static str,
        (rows, count): (&'static str, usize),
        columns: &'static str,
        table: &Columns,
    ) {
        self.dimensions.insert(rows, count);
        self.dimensions.insert(columns, table.len());
        let entry =
            |row: usize| table.iter().map(move |column| column.get(row).map_or(-1, |entry| entry + 1));
        self.set(name, &[rows, columns], Values::Int((0..count).flat_map(entry).collect()));
    }

    pub(super) fn set(&mut self, name: &'static str, dimensions: &[&'static str], values: Values) {
        self.variables.insert(name, Variable { dimensions: dimensions.to_vec(), values });
    }

    /// The integers of a variable, row by row.
    pub(super) fn ints(&mut self, name: &str) -> &mut Vec<i32> {
        match self.variables.get_mut(name).map(|variable| &mut variable.values) {
            Some(Values::Int(values)) => values,
            _ => panic!("{name} is no variable of integers"),
        }
    }

    /// The file in a classic format: 1, 2 or 5.
    pub(super) fn classic(&self, version: u8) -> Vec<u8> {
        let (head, mut bodies) = (self.head(version, 0), Vec::new());
        let mut file = self.head(version, head.len());
        for variable in self.variables.values() {
            match &variable.values {
                Values::Int(values) => values.iter().for_each(|value| bodies.extend(value.to_be_bytes())),
                Values::Double(values) => values.iter().for_each(|value| bodies.extend(value.to_be_bytes())),
                Values::Text(values) => bodies.extend(values),
            }
            bodies.resize(bodies.len().next_multiple_of(4), 0);
        }
        file.extend(bodies);
        file
    }

    /// The header of a classic file, whose first variable begins at `start`.
    fn head(&self, version: u8, start: usize) -> Vec<u8> {
        let number = |head: &mut Vec<u8>, number: usize| match version {
            5 => head.extend((number as u64).to_be_bytes()),
            _ => head.extend((number as u32).to_be_bytes()),
        };
        let name = |head: &mut Vec<u8>, name: &str| {
            number(head, name.len());
            head.extend(name.as_bytes());
            head.resize(head.len().next_multiple_of(4), 0);
        };
        let tag = |head: &mut Vec<u8>, tag: u32, count: usize| {
            head.extend(tag.to_be_bytes());
            number(head, count);
        };
        let mut head = vec![b'C', b'D', b'F', version];
        number(&mut head, 0);
        tag(&mut head, 10, self.dimensions.len());
        for (dimension, &size) in &self.dimensions {
            name(&mut head, dimension);
            number(&mut head, size);
        }
        tag(&mut head, 0, 0);
        tag(&mut head, 11, self.variables.len());
        let mut begin = start;
        for (variable, Variable { dimensions, values }) in &self.variables {
            name(&mut head, variable);
            number(&mut head, dimensions.len());
            for dimension in dimensions {
                let at = self.dimensions.keys().position(|other| other == dimension).expect("a dimension");
                number(&mut head, at);
            }
            tag(&mut head, 0, 0);
            let (kind, bytes) = match values {
                Values::Int(values) => (4u32, 4 * values.len()),
                Values::Double(values) => (6, 8 * values.len()),
                Values::Text(values) => (2, values.len()),
            };
            head.extend(kind.to_be_bytes());
            let size = bytes.next_multiple_of(4);
            number(&mut head, size);
            match version {
                1 => head.extend((begin as u32).to_be_bytes()),
                _ => head.extend((begin as u64).to_be_bytes()),
            }
            begin += size;
        }
        head
    }
}
