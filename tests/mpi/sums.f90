! SPDX-License-Identifier: BSD-2-Clause
! mpi-fortran-sums: the calls that are taken, by `use mpi` and by `use mpi_f08`. Prints "ok" at rank 0.
module old
    implicit none
contains
    subroutine check_old(good)
        use mpi
        logical, intent(inout) :: good
        integer :: rank, ranks, error, request
        real(8) :: numbers(1000), total(1000)
        call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
        call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
        numbers = rank + 0.5d0
        call MPI_Allreduce(numbers, total, 1000, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
        good = good .and. all(total == 0.5d0 * ranks * ranks)
        call MPI_Allreduce(MPI_IN_PLACE, numbers, 1000, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, error)
        good = good .and. all(numbers == ranks - 0.5d0)
        total = 0
        call MPI_Reduce(numbers, total, 1000, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD, error)
        call MPI_Bcast(total, 1000, MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, error)
        good = good .and. all(total == ranks * (ranks - 0.5d0))
        call MPI_Iallreduce(MPI_IN_PLACE, total, 1000, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, request, error)
        call MPI_Wait(request, MPI_STATUS_IGNORE, error)
        good = good .and. all(total == ranks * ranks * (ranks - 0.5d0))
        call MPI_Barrier(MPI_COMM_WORLD, error)
    end subroutine
end module

module new
    implicit none
contains
    subroutine check_new(good)
        use mpi_f08
        logical, intent(inout) :: good
        type(MPI_Request) :: request
        integer :: rank, ranks
        integer :: numbers(1000), total(1000)
        call MPI_Comm_rank(MPI_COMM_WORLD, rank)
        call MPI_Comm_size(MPI_COMM_WORLD, ranks)
        numbers = rank
        call MPI_Allreduce(numbers, total, 1000, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD)
        good = good .and. all(total == ranks - 1)
        call MPI_Allreduce(MPI_IN_PLACE, total, 1000, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
        good = good .and. all(total == ranks * (ranks - 1))
        total = 0
        call MPI_Reduce(numbers, total, 1000, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD)
        call MPI_Bcast(total, 1000, MPI_INTEGER, 0, MPI_COMM_WORLD)
        good = good .and. all(total == ranks * (ranks - 1) / 2)
        call MPI_Iallreduce(MPI_IN_PLACE, numbers, 1000, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD, request)
        call MPI_Wait(request, MPI_STATUS_IGNORE)
        good = good .and. all(numbers == 0)
        call MPI_Barrier(MPI_COMM_WORLD)
    end subroutine
end module

program sums
    use mpi_f08
    use old
    use new
    implicit none
    logical :: good = .true.
    integer :: rank
    call MPI_Init()
    call check_old(good)
    call check_new(good)
    call MPI_Allreduce(MPI_IN_PLACE, good, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    if (good .and. rank == 0) print '(a)', 'ok'
    call MPI_Finalize()
end program
