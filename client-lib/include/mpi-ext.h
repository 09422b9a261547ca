/* Extensions to MPI, for programs that include this file as Open MPI wants it: their functions and error classes are in mpi.h. */
#ifndef RSD_MPI_EXT_H
#define RSD_MPI_EXT_H

#include <mpi.h>

/* The fault tolerance of ULFM, under Open MPI's names for what a library has. */
#define OMPI_HAVE_MPI_EXT 1
#define OMPI_HAVE_MPI_EXT_FTMPI 1
#define OMPI_HAVE_MPIX_COMM_GET_FAILED 1
#define OMPI_HAVE_MPIX_COMM_ACK_FAILED 1
#define OMPI_HAVE_MPIX_COMM_ISHRINK 1

#endif
