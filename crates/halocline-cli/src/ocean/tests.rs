//! The ocean on the embedded mesh, over ranks that this thread simulates in turn.

mod device;

use super::domain::Domain;
use super::geometry::{EARTH_RADIUS, Triangle, spherical_area};
use super::input::{Fesom, Source};
use super::rigid_lid::potential;
use super::simulation::common_step;
use super::state::Case;
use super::verify::{Verdict, verify};
use halocline::{Communicator, MeshDomains, Partition};
use std::f64::consts::PI;
use std::sync::OnceLock;

struct Prepared {
    case: Case,
    potential: Vec<f64>,
}

/// The case, made once.
fn prepared() -> &'static Prepared {
    static CASE: OnceLock<Prepared> = OnceLock::new();
    CASE.get_or_init(|| {
        let case = Case::new(Fesom::read(&Source::Embedded).unwrap()).unwrap();
        Prepared { potential: potential(&case), case }
    })
}

fn parts(prepared: &Prepared, partition: &Partition) -> Vec<(MeshDomains, Domain)> {
    let topology = &prepared.case.mesh.topology;
    let part = |rank| {
        let domains = topology.domains_by_vertex(partition, rank).unwrap();
        let domain = Domain::new(&prepared.case, &domains, &prepared.potential);
        (domains, domain)
    };
    (0..partition.ranks()).map(part).collect()
}

fn whole(prepared: &Prepared) -> (MeshDomains, Domain) {
    let one = Partition::block(prepared.case.mesh.positions.len(), 1).unwrap();
    parts(prepared, &one).remove(0)
}

/// A partition without any shape, so that nearly every node is in some halo.
fn scattered(nodes: usize, ranks: usize, seed: u64) -> Partition {
    let rank = |node| (node as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    Partition::given((0..nodes).map(|node| rank(node) as usize % ranks).collect(), ranks).unwrap()
}

/// Global field from the owned rows of each rank.
fn gather(ids: &[&[u64]], fields: &[Vec<f64>], layers: usize, cells: usize) -> Vec<f64> {
    let mut global = vec![f64::NAN; cells * layers];
    for (ids, field) in ids.iter().zip(fields) {
        for (&id, row) in ids.iter().zip(field.chunks_exact(layers)) {
            global[id as usize * layers..][..layers].copy_from_slice(row);
        }
    }
    global
}

/// An exchange: copies the owned rows to all other copies of them.
fn exchange(cells: &[&[u64]], owned: &[&[u64]], fields: &mut [Vec<f64>], layers: usize, count: usize) {
    let global = gather(owned, fields, layers, count);
    for (ids, field) in cells.iter().zip(fields) {
        for (&id, row) in ids.iter().zip(field.chunks_exact_mut(layers)) {
            row.copy_from_slice(&global[id as usize * layers..][..layers]);
        }
    }
}

/// The temperature on the global mesh after `steps` steps.
fn simulate(prepared: &Prepared, partition: &Partition, start: &[f64], steps: usize) -> Vec<f64> {
    let (case, parts) = (&prepared.case, parts(prepared, partition));
    let (layers, nodes) = (case.layers(), case.mesh.positions.len());
    let triangles = case.mesh.triangles().len();
    let node_ids: Vec<&[u64]> = parts.iter().map(|(ids, _)| ids.vertices().cells()).collect();
    let triangle_ids: Vec<&[u64]> = parts.iter().map(|(ids, _)| ids.elements().cells()).collect();
    let owned_nodes: Vec<&[u64]> = parts.iter().map(|(_, part)| part.owned_nodes.as_slice()).collect();
    let owned_triangles: Vec<&[u64]> =
        triangle_ids.iter().zip(&parts).map(|(ids, (_, part))| &ids[..part.owned_triangles]).collect();

    let rows = |ids: &[&[u64]]| ids.iter().map(|ids| vec![f64::NAN; ids.len() * layers]).collect::<Vec<_>>();
    let (mut now, mut later) = (rows(&node_ids), rows(&node_ids));
    let (mut east, mut north) = (rows(&triangle_ids), rows(&triangle_ids));
    for (ids, field) in node_ids.iter().zip(&mut now) {
        for (&id, row) in ids.iter().zip(field.chunks_exact_mut(layers)) {
            row.copy_from_slice(&start[id as usize * layers..][..layers]);
        }
    }
    let seconds = parts.iter().map(|(_, part)| part.longest_step().0).fold(f64::INFINITY, f64::min);
    for _ in 0..steps {
        for (at, (_, part)) in parts.iter().enumerate() {
            part.gradients(&now[at], &mut east[at], &mut north[at]);
        }
        for gradient in [&mut east, &mut north] {
            exchange(&triangle_ids, &owned_triangles, gradient, layers, triangles);
        }
        for (at, (_, part)) in parts.iter().enumerate() {
            part.advance(seconds, &now[at], (&east[at], &north[at]), &mut later[at]);
        }
        std::mem::swap(&mut now, &mut later);
        exchange(&node_ids, &owned_nodes, &mut now, layers, nodes);
    }
    gather(&owned_nodes, &now, layers, nodes)
}

fn initial(case: &Case) -> Vec<f64> {
    let mut field = vec![0.0; case.mesh.positions.len() * case.layers()];
    for (node, column) in field.chunks_exact_mut(case.layers()).enumerate() {
        case.temperature(node, column);
    }
    field
}

#[test]
fn the_mesh_covers_two_thirds_of_the_sphere() {
    let mesh = &prepared().case.mesh;
    let area: f64 = (0..mesh.triangles().len()).map(|triangle| spherical_area(mesh.corners(triangle))).sum();
    assert!((area / (4.0 * PI) - 0.666).abs() < 0.01, "{area}");
}

#[test]
fn dual_areas_sum_to_the_area_of_the_wet_triangles() {
    let prepared = prepared();
    let (_, domain) = whole(prepared);
    for layer in [0, 20, 44] {
        let dual: f64 = domain.area.iter().skip(layer).step_by(domain.layers).sum();
        let wet = |&triangle: &usize| prepared.case.triangle_layers(triangle) > layer;
        let triangles = (0..prepared.case.mesh.triangles().len()).filter(wet);
        let area: f64 = triangles.map(|triangle| spherical_area(prepared.case.mesh.corners(triangle))).sum();
        assert!((dual / (area * EARTH_RADIUS * EARTH_RADIUS) - 1.0).abs() < 1e-12, "layer {layer}");
    }
}

#[test]
fn every_wet_cell_has_a_temperature() {
    let prepared = prepared();
    let (_, domain) = whole(prepared);
    let field = initial(&prepared.case);
    for (node, column) in field.chunks_exact(domain.layers).enumerate() {
        let (wet, dry) = column.split_at(domain.node_layers[node]);
        assert!(wet.iter().all(|&value| value != 0.0 && (-2.5..30.0).contains(&value)), "node {node}");
        assert!(dry.iter().all(|&value| value == 0.0), "node {node}");
    }
}

#[test]
fn the_corrected_transport_has_no_divergence_and_the_correction_is_small() {
    let Prepared { case, potential } = prepared();
    let (_, domain) = whole(prepared());
    let (mut u, mut v) = (vec![0.0; domain.layers], vec![0.0; domain.layers]);
    let mut through_surface = vec![0.0; domain.owned_nodes.len()];
    let mut through_faces = vec![0.0; domain.owned_nodes.len()];
    domain.each_flow(|_, from, to, flow| {
        through_surface[from] -= flow;
        through_surface[to] += flow;
        through_faces[from] += flow.abs();
    });
    for node in 0..domain.owned_nodes.len() {
        assert!(through_surface[node].abs() < 1e-9 * through_faces[node].max(1e3), "node {node}");
    }
    // Depth-mean currents and their correction, both as sums of squares.
    let (mut given, mut correction) = (0.0, 0.0);
    for (triangle, corners) in case.mesh.triangles().iter().enumerate() {
        let shape = Triangle::new(case.mesh.corners(triangle));
        let [x, y] = super::domain::gradient(&shape, corners.map(|node| potential[node as usize]));
        correction += shape.area * (x * x + y * y);
        case.velocity(triangle, &mut u, &mut v);
        let depth: f64 = domain.thickness[..case.triangle_layers(triangle)].iter().sum();
        let mean = |speeds: &[f64]| {
            speeds.iter().zip(&domain.thickness).map(|(speed, h)| speed * h).sum::<f64>() / depth
        };
        given += shape.area * (mean(&u).powi(2) + mean(&v).powi(2));
    }
    let share = (correction / given).sqrt();
    assert!(share < 0.02, "{share}");
}

#[test]
fn a_constant_temperature_stays_constant() {
    let prepared = prepared();
    let (_, domain) = whole(prepared);
    let constant = vec![10.0; domain.owned_nodes.len() * domain.layers];
    let one = Partition::block(domain.owned_nodes.len(), 1).unwrap();
    let end = simulate(prepared, &one, &constant, 10);
    for (node, column) in end.chunks_exact(domain.layers).enumerate() {
        for value in &column[..domain.node_layers[node]] {
            assert!((value - 10.0).abs() < 1e-9, "{value} at node {node}");
        }
    }
}

#[test]
fn heat_is_conserved_and_temperatures_stay_real() {
    let prepared = prepared();
    let (_, domain) = whole(prepared);
    let start = initial(&prepared.case);
    let end = simulate(prepared, &Partition::block(domain.owned_nodes.len(), 1).unwrap(), &start, 30);
    let (change, content) = domain.heat_change(&start, &end);
    assert!((change / content).abs() < 1e-15, "{change} of {content}");
    assert!(start != end);
    for (node, column) in end.chunks_exact(domain.layers).enumerate() {
        let wet = &column[..domain.node_layers[node]];
        assert!(wet.iter().all(|value| (-2.0..29.5).contains(value)), "{wet:?} at node {node}");
    }
}

#[test]
fn the_result_is_the_same_to_the_last_bit_for_every_partition() {
    let prepared = prepared();
    let nodes = prepared.case.mesh.positions.len();
    let start = initial(&prepared.case);
    let expected = simulate(prepared, &Partition::block(nodes, 1).unwrap(), &start, 5);
    let graph = prepared.case.mesh.topology.vertex_graph().unwrap();
    let partitions = [
        Partition::metis(&graph, 4).unwrap(),
        Partition::block(nodes, 3).unwrap(),
        scattered(nodes, 2, 1),
        scattered(nodes, 5, 2),
    ];
    for partition in partitions {
        let found = simulate(prepared, &partition, &start, 5);
        let same = found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{} ranks", partition.ranks());
    }
}

#[test]
fn the_check_accepts_the_right_result_and_sees_a_single_wrong_bit() {
    let Prepared { case, potential } = prepared();
    let (_, domain) = whole(prepared());
    let one = Partition::block(domain.owned_nodes.len(), 1).unwrap();
    let mut result = simulate(prepared(), &one, &initial(case), 3);
    let verdict = verify(case, potential, 3, &result, || {}).unwrap();
    assert_eq!(verdict.max_abs_diff, 0.0);
    assert!(verdict.is_good());
    assert_eq!(verdict.wet_cells, domain.node_layers.iter().sum::<usize>());

    let right = std::mem::replace(&mut result[100], f64::NAN);
    assert!(!verify(case, potential, 3, &result, || {}).unwrap().is_good());
    result[100] = f64::from_bits(right.to_bits() ^ 1);
    let verdict = verify(case, potential, 3, &result, || {}).unwrap();
    assert!(verdict.max_abs_diff > 0.0 && !verdict.is_good());
}

#[test]
fn a_run_that_loses_heat_is_not_good() {
    let verdict = |conservation| Verdict { max_abs_diff: 0.0, conservation, wet_cells: 1 };
    assert!(verdict(1e-15).is_good());
    assert!(!verdict(1e-9).is_good());
    assert!(!verdict(f64::NAN).is_good());
}

/// The error names the cell that limits the step.
#[test]
fn a_time_step_that_makes_no_sense_is_refused_with_its_node() {
    for speed in [1e30, f64::NAN, f64::INFINITY] {
        let (_, mut domain) = whole(prepared());
        let triangle = domain.triangles.iter().position(|triangle| triangle.layers > 3).unwrap();
        let corners = domain.triangles[triangle].nodes.map(|node| node as u64 + 1);
        domain.u[triangle * domain.layers + 3] = speed;
        match common_step(&Communicator::single(), &domain) {
            Err(error) => {
                let text = error.to_string();
                let is_named = |node: &u64| text.contains(&format!("which layer 4 of node {node} allows"));
                assert!(
                    corners.iter().any(is_named) && text.contains("allows; check the velocities (u.npy"),
                    "{text}"
                );
            }
            other => panic!("{speed}: {other:?}"),
        }
    }
}
