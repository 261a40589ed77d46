//! Draws the halo levels that ICON gives to a part of an icosahedral grid, as SVG on standard output.
//!
//! `tools/draw-icon-halos` writes `docs/pictures/icon-halos.svg` with it.

use halocline::{IconHalos, IcosahedralGrid, Mesh, Partition, UnstructuredDomain};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;

const BISECTIONS: usize = 3;
const PARTS: usize = 16;
/// The part whose halos are drawn.
const PART: usize = 5;

/// Pixels along a panel.
const SIDE: f64 = 380.0;
const GAP: f64 = 20.0;
const TOP: f64 = 84.0;
const BELOW: f64 = 56.0;

const STYLE: &str = ".grid{fill:#fff;stroke:#d4d4d8;stroke-width:0.7}.cell{stroke:#fff;stroke-width:0.7}\
    .edge{stroke-width:3;stroke-linecap:round}.cut{stroke:#1b1b1f;stroke-width:2.5;stroke-linecap:round}\
    .under{stroke-width:8}.frame{fill:none;stroke:#88888f}\
    .f0{fill:#3d6ba8}.f1{fill:#e0813a}.f2{fill:#f3cf7a}.f3{fill:#9a6fb0}\
    .s0{stroke:#3d6ba8}.s1{stroke:#e0813a}.s2{stroke:#f3cf7a}.s3{stroke:#9a6fb0}";

type Vector = [f64; 3];

fn dot(a: Vector, b: Vector) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn cross(a: Vector, b: Vector) -> Vector {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

fn unit(a: Vector) -> Vector {
    a.map(|x| x / dot(a, a).sqrt())
}

/// The Earth seen from above the middle of the part.
struct View<'a> {
    points: &'a [Vector],
    above: Vector,
    right: Vector,
    up: Vector,
    /// Pixels of the Earth's radius.
    scale: f64,
}

impl<'a> View<'a> {
    /// All local vertices are within a panel.
    fn new(points: &'a [Vector], halos: &IconHalos) -> Self {
        let vertices = halos.vertices().cells();
        let owned = vertices[..halos.owned_vertices()].iter().map(|&vertex| points[vertex as usize]);
        let above = unit(owned.fold([0.0; 3], |sum, point| [0, 1, 2].map(|axis| sum[axis] + point[axis])));
        let right = unit(cross([0.0, 0.0, 1.0], above));
        let mut view = Self { points, above, right, up: cross(above, right), scale: 1.0 };
        let place = |&vertex: &u64| view.place(vertex as u32).map(|x| (x - SIDE / 2.0).abs());
        let farthest = vertices.iter().flat_map(place).fold(0.0, f64::max);
        view.scale = 0.46 * SIDE / farthest;
        view
    }

    fn place(&self, vertex: u32) -> [f64; 2] {
        let point = self.points[vertex as usize];
        let (x, y) = (dot(point, self.right), dot(point, self.up));
        [SIDE / 2.0 + self.scale * x, SIDE / 2.0 - self.scale * y]
    }

    /// Whether a triangle is on the side that is seen, and in the panel.
    fn shows(&self, corners: &[u32]) -> bool {
        let is_near =
            |&corner: &u32| self.place(corner).iter().all(|x| (-0.1 * SIDE..1.1 * SIDE).contains(x));
        let is_in_front = |&corner: &u32| dot(self.points[corner as usize], self.above) > 0.0;
        corners.iter().all(is_in_front) && corners.iter().any(is_near)
    }

    fn triangle(&self, corners: &[u32], class: &str) -> String {
        let place = |&corner: &u32| self.place(corner).map(|x| format!("{x:.1}")).join(",");
        let places: Vec<String> = corners.iter().map(place).collect();
        format!("<polygon class=\"{class}\" points=\"{}\"/>\n", places.join(" "))
    }

    fn line(&self, ends: [u32; 2], class: &str) -> String {
        let [[x1, y1], [x2, y2]] = ends.map(|end| self.place(end));
        format!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n")
    }

    fn dot(&self, vertex: u32, class: &str) -> String {
        let [x, y] = self.place(vertex);
        format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>\n")
    }
}

/// The halo level of each local cell, edge or vertex; 0 of owned ones.
fn levels(domain: &UnstructuredDomain) -> impl Iterator<Item = usize> {
    let ends = domain.levels();
    (0..domain.cells().len()).map(move |local| ends.partition_point(|&end| end <= local))
}

/// The edges between cells of the part and cells of others.
fn cutting_line(mesh: &Mesh, owners: &[usize]) -> Vec<[u32; 2]> {
    let mut beside: BTreeMap<[u32; 2], Vec<usize>> = BTreeMap::new();
    for (corners, &owner) in mesh.elements().iter().zip(owners) {
        for side in 0..3 {
            let mut ends = [corners[side], corners[(side + 1) % 3]];
            ends.sort_unstable();
            beside.entry(ends).or_default().push(owner);
        }
    }
    let is_cut = |owners: &Vec<usize>| owners.contains(&PART) && owners.iter().any(|&owner| owner != PART);
    beside.into_iter().filter(|(_, owners)| is_cut(owners)).map(|(ends, _)| ends).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let grid = IcosahedralGrid::new(BISECTIONS)?;
    let mesh = grid.mesh();
    let partition = Partition::metis(&mesh.element_graph(2)?, PARTS)?;
    let halos = mesh.icon_halos(&partition, PART)?;
    let view = View::new(grid.points(), &halos);
    let vertex = |local: u32| halos.vertices().cells()[local as usize] as u32;

    let cut = cutting_line(mesh, partition.owners());
    let line = |class: &str| cut.iter().map(|&ends| view.line(ends, class)).collect::<String>();
    let cells = halos.cells().cells().iter().zip(levels(halos.cells()));
    let cells = cells
        .map(|(&cell, level)| view.triangle(mesh.elements().get(cell as usize), &format!("cell f{level}")));
    let edges = halos.edges().vertices().iter().zip(levels(halos.edges().domain()));
    let edges = edges.map(|(ends, level)| view.line(ends.map(vertex), &format!("edge s{level}")));
    let vertices = halos.vertices().cells().iter().zip(levels(halos.vertices()));
    let vertices = vertices.map(|(&id, level)| view.dot(id as u32, &format!("f{level}")));
    let panels = [
        ("Cells", cells.collect::<String>() + &line("cut")),
        ("Edges", line("cut under") + &edges.collect::<String>()),
        ("Vertices", line("cut") + &vertices.collect::<String>()),
    ];
    let shown = mesh.elements().iter().filter(|corners| view.shows(corners));
    let background: String = shown.map(|corners| view.triangle(corners, "grid")).collect();
    print!("{}", picture(&background, &panels)?);
    Ok(())
}

fn picture(background: &str, panels: &[(&str, String)]) -> Result<String, std::fmt::Error> {
    let (width, height) = (panels.len() as f64 * (SIDE + GAP) + GAP, TOP + SIDE + BELOW);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <defs><g id=\"grid\">\n{background}</g></defs>\n\
         <text x=\"{GAP}\" y=\"28\" font-size=\"17\">What one of {PARTS} ranks has of an icosahedral grid of {} cells</text>\n",
        20 << (2 * BISECTIONS)
    );
    for (number, (title, drawn)) in panels.iter().enumerate() {
        let left = GAP + number as f64 * (SIDE + GAP);
        writeln!(svg, "<text x=\"{left}\" y=\"{}\" font-size=\"15\">{title}</text>", TOP - 12.0)?;
        // A nested picture cuts off what lies outside of it.
        writeln!(svg, "<svg x=\"{left}\" y=\"{TOP}\" width=\"{SIDE}\" height=\"{SIDE}\">")?;
        writeln!(svg, "<use href=\"#grid\"/>\n{drawn}</svg>")?;
        writeln!(svg, "<rect class=\"frame\" x=\"{left}\" y=\"{TOP}\" width=\"{SIDE}\" height=\"{SIDE}\"/>")?;
    }
    let middle = TOP + SIDE + 32.0;
    for (level, text) in ["owned", "level 1", "level 2", "level 3 (edges alone)"].into_iter().enumerate() {
        let left = GAP + 130.0 * level as f64;
        writeln!(
            svg,
            "<rect class=\"f{level}\" x=\"{left}\" y=\"{}\" width=\"16\" height=\"16\"/>",
            middle - 8.0
        )?;
        writeln!(svg, "<text x=\"{}\" y=\"{}\">{text}</text>", left + 24.0, middle + 5.0)?;
    }
    let left = GAP + 600.0;
    writeln!(
        svg,
        "<line class=\"cut\" x1=\"{left}\" y1=\"{middle}\" x2=\"{}\" y2=\"{middle}\"/>",
        left + 28.0
    )?;
    writeln!(svg, "<text x=\"{}\" y=\"{}\">the cutting line</text>", left + 38.0, middle + 5.0)?;
    Ok(svg + "</svg>\n")
}
