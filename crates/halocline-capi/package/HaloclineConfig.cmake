# find_package(Halocline) defines
#   Halocline::halocline  the shared library, for C and C++
#   Halocline::static     the static library
#   Halocline::fortran    the Fortran modules, compiled by each target that links it
# and the variable Halocline_COMMAND, the command `halocline` that launches ranks.
get_filename_component(Halocline_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(Halocline_COMMAND "${Halocline_PREFIX}/bin/halocline")

if(NOT TARGET Halocline::halocline)
  add_library(Halocline::halocline SHARED IMPORTED)
  set_target_properties(Halocline::halocline PROPERTIES
    IMPORTED_LOCATION "${Halocline_PREFIX}/lib/libhalocline.so.0"
    IMPORTED_SONAME "libhalocline.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${Halocline_PREFIX}/include")

  add_library(Halocline::static STATIC IMPORTED)
  set_target_properties(Halocline::static PROPERTIES
    IMPORTED_LOCATION "${Halocline_PREFIX}/lib/libhalocline.a"
    INTERFACE_INCLUDE_DIRECTORIES "${Halocline_PREFIX}/include"
    INTERFACE_LINK_LIBRARIES "gcc_s;m;pthread;dl")

  set(halocline_fortran halocline.f90 halocline_meshes.f90 halocline_packets.f90 halocline_patches.f90 halocline_programs.f90
    halocline_redistribution.f90 halocline_fortran.c)
  list(TRANSFORM halocline_fortran PREPEND "${Halocline_PREFIX}/share/halocline/")
  # One of the sources of the Fortran modules is C. A project may enable Fortran later.
  get_property(halocline_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT "C" IN_LIST halocline_languages)
    enable_language(C)
  endif()
  add_library(Halocline::fortran INTERFACE IMPORTED)
  set_target_properties(Halocline::fortran PROPERTIES
    INTERFACE_SOURCES "${halocline_fortran}"
    INTERFACE_LINK_LIBRARIES Halocline::halocline)
  unset(halocline_fortran)
endif()
