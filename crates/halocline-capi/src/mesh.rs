//! Meshes, partitions, and the halos that they make.

use crate::call::{call, call_for};
use crate::collective::collective_for;
use crate::comm::Comm;
use crate::object::Handle;
use crate::options;
use crate::pattern::BoundPattern;
use crate::pointer::{Capacity, OutArray, OutPtr, array, copied, entries, store};
use crate::status::{Refusal, Status};
use halocline::{
    Elements, IconHalos, Mesh, MeshDomains, MeshEdges, MeshError, MeshHalos, MeshPart, Partition, Pattern,
    Shared, UnstructuredDomain,
};

/// A mesh of C: all of it, or the part that one rank holds.
pub(crate) enum AnyMesh {
    Whole(Mesh),
    Part(MeshPart),
}

impl AnyMesh {
    fn mesh(&self) -> &Mesh {
        match self {
            Self::Whole(mesh) => mesh,
            Self::Part(part) => part.mesh(),
        }
    }

    pub(crate) fn whole(&self) -> Result<&Mesh, Refusal> {
        match self {
            Self::Whole(mesh) => Ok(mesh),
            Self::Part(_) => Err(Refusal::argument("the mesh is a part of one; pass a whole mesh")),
        }
    }
}

/// The domains of one part of a mesh, and its local elements.
pub(crate) struct Halos {
    elements: UnstructuredDomain,
    vertices: UnstructuredDomain,
    owned: [usize; 2],
    connectivity: Elements,
    edges: Option<Edges>,
    icon: Option<IconTables>,
}

/// The edges of a part of a mesh.
struct Edges {
    domain: UnstructuredDomain,
    owned: usize,
    /// The local vertices of each local edge.
    vertices: Vec<[u32; 2]>,
}

impl Edges {
    fn of(edges: &MeshEdges, vertices: &[[u32; 2]]) -> Self {
        Self { domain: edges.domain().clone(), owned: edges.owned(), vertices: vertices.to_vec() }
    }
}

/// The tables of a part of a grid file of ICON.
pub(crate) struct IconTables {
    /// The local edges of each local cell.
    pub(crate) cell_edges: Vec<[u32; 3]>,
    /// The local cells beside each local edge.
    pub(crate) edge_cells: Vec<[u32; 2]>,
}

impl Halos {
    fn of(halos: &MeshHalos<'_>, edges: bool) -> Result<Self, MeshError> {
        Ok(Self {
            elements: halos.elements().clone(),
            vertices: halos.vertices().clone(),
            owned: [halos.owned_elements(), halos.owned_vertices()],
            connectivity: halos.local_elements().clone(),
            edges: match edges {
                true => Some(halos.edges()?).map(|edges| Edges::of(&edges, edges.vertices())),
                false => None,
            },
            icon: None,
        })
    }

    /// Those around owned vertices and elements, without edges.
    fn of_domains(domains: &MeshDomains) -> Self {
        Self {
            elements: domains.elements().clone(),
            vertices: domains.vertices().clone(),
            owned: [domains.owned_elements(), domains.owned_vertices()],
            connectivity: domains.local_elements().clone(),
            edges: None,
            icon: None,
        }
    }

    /// Those of ICON. `ends` are the local vertices of each local edge.
    pub(crate) fn of_icon(halos: &IconHalos, ends: &[[u32; 2]], icon: Option<IconTables>) -> Self {
        Self {
            elements: halos.cells().clone(),
            vertices: halos.vertices().clone(),
            owned: [halos.owned_cells(), halos.owned_vertices()],
            connectivity: halos.local_cells().clone(),
            edges: Some(Edges::of(halos.edges(), ends)),
            icon,
        }
    }

    pub(crate) fn icon(&self) -> Result<&IconTables, Refusal> {
        let missing = || {
            Refusal::argument(
                "the halos are of no grid file of ICON; make them by `halocline_icon_grid_part`",
            )
        };
        self.icon.as_ref().ok_or_else(missing)
    }

    /// The domain of a kind of cells, and its number of owned cells.
    fn domain(&self, kind: i32) -> Result<(&UnstructuredDomain, usize), Refusal> {
        match kind {
            0 => Ok((&self.elements, self.owned[0])),
            1 => Ok((&self.vertices, self.owned[1])),
            2 => self.edges().map(|edges| (&edges.domain, edges.owned)),
            other => Err(Refusal::argument(format!(
                "kind is {other}; pass HALOCLINE_ELEMENTS, HALOCLINE_VERTICES or HALOCLINE_EDGES"
            ))),
        }
    }

    fn edges(&self) -> Result<&Edges, Refusal> {
        let missing = || {
            Refusal::argument(
                "the halos were made without edges; make them by `halocline_mesh_halos_create` with 1 for `edges`",
            )
        };
        self.edges.as_ref().ok_or_else(missing)
    }
}

/// A mesh whose elements have the same number of vertices.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_mesh_create(
    vertices: usize,
    elements: usize,
    arity: usize,
    connectivity: *const u32,
    solid: i32,
    mesh: OutPtr<'_, Handle<AnyMesh>>,
) -> Status {
    call_for(mesh, "mesh", || {
        // SAFETY: the caller passes null or an element for each vertex of each element.
        let connectivity = unsafe { array(connectivity, elements.saturating_mul(arity), "connectivity") }?;
        made(Mesh::new(vertices, arity, copied(connectivity, "connectivity")?)?, solid)
    })
}

/// A mesh whose elements differ in their number of vertices.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_mesh_create_mixed(
    vertices: usize,
    elements: usize,
    offsets: *const usize,
    connectivity: *const u32,
    solid: i32,
    mesh: OutPtr<'_, Handle<AnyMesh>>,
) -> Status {
    call_for(mesh, "mesh", || {
        // SAFETY: the caller passes null or one element more than there are elements.
        let offsets = unsafe { array(offsets, elements.saturating_add(1), "offsets") }?;
        // SAFETY: the caller passes null or as many elements as the last offset says.
        let connectivity = unsafe { array(connectivity, entries(offsets)?, "connectivity") }?;
        let (offsets, connectivity) = (copied(offsets, "offsets")?, copied(connectivity, "connectivity")?);
        made(Mesh::mixed(vertices, offsets, connectivity)?, solid)
    })
}

fn made(mesh: Mesh, solid: i32) -> Result<Handle<AnyMesh>, Refusal> {
    let mesh = if options::flag(solid, "solid")? { mesh.solid()? } else { mesh };
    Handle::new(AnyMesh::Whole(mesh))
}

/// The part of a mesh that one rank holds.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_mesh_part(
    local: Handle<AnyMesh>,
    vertex_ids: *const u64,
    element_ids: *const u64,
    partition: Handle<Partition>,
    part: usize,
    depth: usize,
    mesh: OutPtr<'_, Handle<AnyMesh>>,
) -> Status {
    call_for(mesh, "mesh", || {
        let local = local.pin()?;
        let local = local.whole()?;
        // SAFETY: the caller passes null or an element for each vertex.
        let vertices = unsafe { array(vertex_ids, local.vertices(), "vertex_ids") }?;
        // SAFETY: the caller passes null or an element for each element of the mesh.
        let elements = unsafe { array(element_ids, local.elements().len(), "element_ids") }?;
        let (vertices, elements) = (copied(vertices, "vertex_ids")?, copied(elements, "element_ids")?);
        let owners = (partition.pin()?.clone(), part);
        Handle::new(AnyMesh::Part(MeshPart::new(local.clone(), vertices, elements, owners, depth)?))
    })
}

/// A part of a finer mesh.
#[unsafe(no_mangle)]
extern "C" fn halocline_mesh_refined(
    mesh: Handle<AnyMesh>,
    partition: Handle<Partition>,
    part: usize,
    segments: usize,
    depth: usize,
    refined: OutPtr<'_, Handle<AnyMesh>>,
) -> Status {
    call_for(refined, "refined", || {
        let mesh = mesh.pin()?;
        let part = mesh.whole()?.refined_part(&*partition.pin()?, part, segments, depth)?;
        Handle::new(AnyMesh::Part(part))
    })
}

/// The domains of a part of a mesh.
#[unsafe(no_mangle)]
extern "C" fn halocline_mesh_halos_create(
    comm: Handle<Comm>,
    mesh: Handle<AnyMesh>,
    partition: Handle<Partition>,
    part: usize,
    depth: usize,
    shared: i32,
    edges: i32,
    halos: OutPtr<'_, Handle<Halos>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parse = || {
            let choices = [Shared::Vertex, Shared::Edge, Shared::Facet];
            let remedy = "pass HALOCLINE_SHARED_VERTEX, _EDGE or _FACET";
            let shared = options::choice(shared, choices, "shared", remedy)?;
            let (mesh, edges) = (mesh.pin()?, options::flag(edges, "edges")?);
            Ok(match &*mesh {
                AnyMesh::Whole(mesh) => {
                    Halos::of(&mesh.halos(&*partition.pin()?, part, depth, shared)?, edges)?
                }
                AnyMesh::Part(own) => Halos::of(&own.halos(depth, shared)?, edges)?,
            })
        };
        collective_for(&comm.comm, "halos", (halos, "halos"), parse, |_, made| Handle::new(made))
    })
}

/// The domains of a part of a mesh, with the halos of ICON.
#[unsafe(no_mangle)]
extern "C" fn halocline_mesh_icon_halos(
    comm: Handle<Comm>,
    mesh: Handle<AnyMesh>,
    partition: Handle<Partition>,
    part: usize,
    halos: OutPtr<'_, Handle<Halos>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parse = || {
            let mesh = mesh.pin()?;
            let halos = match &*mesh {
                AnyMesh::Whole(mesh) => mesh.icon_halos(&*partition.pin()?, part)?,
                AnyMesh::Part(own) => own.icon_halos()?,
            };
            Ok(Halos::of_icon(&halos, halos.edges().vertices(), None))
        };
        collective_for(&comm.comm, "icon_halos", (halos, "halos"), parse, |_, made| Handle::new(made))
    })
}

/// How a mesh is divided by the owners of its vertices or elements.
type Divide = fn(&Mesh, &Partition, usize) -> Result<MeshDomains, MeshError>;

/// The domains of a part of a mesh by the owners of its vertices or elements. Collective.
fn divided(
    (comm, mesh): (Handle<Comm>, Handle<AnyMesh>),
    (partition, part): (Handle<Partition>, usize),
    halos: OutPtr<'_, Handle<Halos>>,
    divide: Divide,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parse = || Ok(Halos::of_domains(&divide(mesh.pin()?.whole()?, &*partition.pin()?, part)?));
        collective_for(&comm.comm, "domains", (halos, "halos"), parse, |_, made| Handle::new(made))
    })
}

/// The domains of a part of a mesh whose vertices have owners.
#[unsafe(no_mangle)]
extern "C" fn halocline_mesh_domains_by_vertex(
    comm: Handle<Comm>,
    mesh: Handle<AnyMesh>,
    partition: Handle<Partition>,
    part: usize,
    halos: OutPtr<'_, Handle<Halos>>,
) -> Status {
    divided((comm, mesh), (partition, part), halos, Mesh::domains_by_vertex)
}

/// The domains of a part of a mesh whose elements have owners, with all elements around owned vertices.
#[unsafe(no_mangle)]
extern "C" fn halocline_mesh_domains_by_element(
    comm: Handle<Comm>,
    mesh: Handle<AnyMesh>,
    partition: Handle<Partition>,
    part: usize,
    halos: OutPtr<'_, Handle<Halos>>,
) -> Status {
    divided((comm, mesh), (partition, part), halos, Mesh::domains_by_element)
}

/// The pattern of the elements, vertices or edges of a mesh.
#[unsafe(no_mangle)]
extern "C" fn halocline_pattern_mesh(
    comm: Handle<Comm>,
    halos: Handle<Halos>,
    kind: i32,
    pattern: OutPtr<'_, Handle<BoundPattern>>,
) -> Status {
    call(|| {
        let comm = comm.pin()?;
        let parse = || Ok(halos.pin()?.domain(kind)?.0.clone());
        collective_for(&comm.comm, "pattern", (pattern, "pattern"), parse, |within, domain| {
            Handle::new(BoundPattern::new(Pattern::unstructured(within, &[domain])?, &comm))
        })
    })
}

/// The global numbers of the local elements, vertices or edges.
#[unsafe(no_mangle)]
extern "C" fn halocline_mesh_ids(
    halos: Handle<Halos>,
    kind: i32,
    ids: OutArray<'_, u64>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
    owned: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let halos = halos.pin()?;
        let (domain, own) = halos.domain(kind)?;
        let out = owned.optional("owned")?;
        store(domain.cells(), (ids, capacity), count, "ids")?;
        out.set(own);
        Ok(())
    })
}

/// The local vertices of the local elements.
#[unsafe(no_mangle)]
extern "C" fn halocline_mesh_connectivity(
    halos: Handle<Halos>,
    vertices: OutArray<'_, u32>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| store(halos.pin()?.connectivity.connectivity(), (vertices, capacity), count, "vertices"))
}

/// Where the vertices of each local element begin in the connectivity.
#[unsafe(no_mangle)]
extern "C" fn halocline_mesh_offsets(
    halos: Handle<Halos>,
    offsets: OutArray<'_, usize>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| store(&offsets_of(&halos.pin()?.connectivity), (offsets, capacity), count, "offsets"))
}

/// Where the vertices of each element begin, and where those of the last one end.
fn offsets_of(elements: &Elements) -> Vec<usize> {
    let ends = elements.iter().scan(0, |end, vertices| {
        *end += vertices.len();
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

/// The vertices of the elements of a mesh.
#[unsafe(no_mangle)]
extern "C" fn halocline_mesh_element_vertices(
    mesh: Handle<AnyMesh>,
    vertices: OutArray<'_, u32>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| store(mesh.pin()?.mesh().elements().connectivity(), (vertices, capacity), count, "vertices"))
}

/// Where the vertices of each element of a mesh begin in the list of all.
#[unsafe(no_mangle)]
extern "C" fn halocline_mesh_element_offsets(
    mesh: Handle<AnyMesh>,
    offsets: OutArray<'_, usize>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| store(&offsets_of(mesh.pin()?.mesh().elements()), (offsets, capacity), count, "offsets"))
}

/// The local vertices at the ends of the local edges.
#[unsafe(no_mangle)]
extern "C" fn halocline_mesh_edges(
    halos: Handle<Halos>,
    ends: OutArray<'_, [u32; 2]>,
    capacity: Capacity,
    count: OutPtr<'_, usize>,
) -> Status {
    call(|| store(&halos.pin()?.edges()?.vertices, (ends, capacity), count, "ends"))
}

/// The numbers of vertices and elements.
#[unsafe(no_mangle)]
extern "C" fn halocline_mesh_size(
    mesh: Handle<AnyMesh>,
    vertices: OutPtr<'_, usize>,
    elements: OutPtr<'_, usize>,
) -> Status {
    call(|| {
        let (vertices, elements) = (vertices.optional("vertices")?, elements.optional("elements")?);
        let mesh = mesh.pin()?;
        vertices.set(mesh.mesh().vertices());
        elements.set(mesh.mesh().elements().len());
        Ok(())
    })
}
