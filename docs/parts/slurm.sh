#!/usr/bin/env bash
# Grades a class in 8 parts: sbatch docs/parts/slurm.sh, with the four paths and numbers below set.
# A part that died is graded again alone: sbatch --array=3 docs/parts/slurm.sh
#SBATCH --job-name=grade
#SBATCH --array=1-8
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --time=08:00:00
#SBATCH --output=grade-%A_%a.log
set -euo pipefail
parts=8 # as --array says above; SLURM_ARRAY_TASK_COUNT is 1 where one part is graded again
lab=${LAB:?the lab that is graded, 03}
handed_in=${HANDED_IN:?the folder of the submissions, on a file system that all nodes share}
grades=${GRADES:?the folder of the results: each part gets one of its own in it}
secret=${SECRET:?the file of the secret, for your eyes alone}
part=$SLURM_ARRAY_TASK_ID

ddpkit grade "$handed_in" --lab "$lab" --secret "$secret" --out "$grades/$part" --part "$part/$parts" --jobs 1 --resume
# When all are done: ddpkit report "$grades"/* --format gradebook --roster roster.csv -o course.csv
