/* SPDX-License-Identifier: BSD-2-Clause */
/* A program of somebody else: the sum over a job's ranks, of which it is one. */
#include <inagg/inagg.h>

#include <stdio.h>

int main(void)
{
	int32_t numbers[1000], i;
	inagg_options options;
	inagg_comm *comm;

	for (i = 0; i < 1000; i++)
		numbers[i] = i;
	if (inagg_options_from_env(&options) || inagg_join(&options, &comm) ||
	    inagg_allreduce(comm, numbers, numbers, 1000, INAGG_INT32, INAGG_SUM)) {
		fprintf(stderr, "%s\n", inagg_message());
		return 1;
	}
	printf("%s: the last of the sums is %d\n", inagg_version(), numbers[999]);
	return inagg_leave(comm) != 0;
}
